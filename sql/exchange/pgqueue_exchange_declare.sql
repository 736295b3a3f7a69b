create or replace function pgqueue_exchange_declare(p_name text, p_declared boolean default false) returns boolean
language plpgsql
set search_path from current
as $$
-- Makes an exchange unless it is there, and returns whether it is new.  p_declared: the code of a project declares it.
-- Writes pgqueue_exchange; publishers do not wait.
begin
    insert into pgqueue_exchange (name, declared) values (p_name, p_declared) on conflict (name) do nothing;
    if found then
        return true;
    end if;
    if p_declared then
        update pgqueue_exchange e set declared = true where e.name = p_name and not e.declared;
    end if;
    return false;
end
$$;
