create or replace function pgqueue_budget_spend(
    p_id bigint,
    p_attempt integer,
    p_name text,
    p_amount numeric,
    p_limit numeric,
    p_worker text default null,
    out p_is_held boolean,
    out p_is_spent boolean,
    out p_spent numeric
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Spends p_amount of a budget that a message that the caller holds has for all of its attempts together.
--   p_is_held   false: the attempt is not the caller's any more, and nothing happened
--   p_is_spent  false: it would have been more than p_limit, and nothing happened
--   p_spent     what is spent in all
-- Locks one row of pgqueue_message as pgqueue_step_record does; writes pgqueue_budget.
begin
    if num_nulls(p_amount, p_limit) > 0 or p_amount < 0 or greatest(abs(p_amount), abs(p_limit)) >= 1e30
       or greatest(scale(p_amount), scale(p_limit)) > 30 then
        raise exception 'p_amount is %, and p_limit is %', left(p_amount::text, 50), left(p_limit::text, 50)
            using errcode = 'invalid_parameter_value',
                  hint = 'They must be numbers of up to 30 digits on each side of the point, and p_amount not below 0.';
    end if;
    perform pgqueue_name_require(p_name, 'a budget');
    perform from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for key share;
    p_is_held := found;
    if not p_is_held then
        return;
    end if;
    insert into pgqueue_budget as b (message_id, name, spent)
    select p_id, p_name, p_amount where p_amount <= p_limit
    on conflict (message_id, name) do update set spent = b.spent + p_amount where b.spent + p_amount <= p_limit
    returning b.spent into p_spent;
    p_is_spent := found;
    if not p_is_spent then
        select coalesce(max(b.spent), 0) into p_spent from pgqueue_budget b where b.message_id = p_id and b.name = p_name;
    end if;
end
$$;
