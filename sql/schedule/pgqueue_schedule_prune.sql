create or replace function pgqueue_schedule_prune() returns integer
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Removes the used slots of deleted schedules, and returns how many.  (pgqueue_schedule_fire removes the old slots
    -- of the others.)  Removes also the declarations of workers that have left.  Any number of workers may call it: it
    -- skips rows that another session removes.
    -- Writes pgqueue_schedule_slot and pgqueue_schedule_declaration; finds the names by one index probe each, however
    -- many slots they have.
    with recursive used as (
        (select l.name from pgqueue_schedule_slot l order by l.name limit 1)
        union all
        select (select l.name from pgqueue_schedule_slot l where l.name > u.name order by l.name limit 1)
        from used u
        where u.name is not null
    ),
    withdrawn as (
        delete from pgqueue_schedule_declaration l
        where l.ctid = any (array(
            select d.ctid from pgqueue_schedule_declaration d
            where not exists (select from pgqueue_worker w where w.id = d.worker)
            for update skip locked))
    ),
    forgotten as (
        delete from pgqueue_schedule_slot l
        where l.ctid = any (array(
            select d.ctid from pgqueue_schedule_slot d
            where d.name = any (array(
                select u.name from used u
                where u.name is not null and not exists (select from pgqueue_schedule s where s.name = u.name)))
            for update skip locked))
        returning l.name
    )
    select count(*)::integer from forgotten
$$;
