"""The SQL of the load: each statement makes or removes all rows of one kind.

Everything that it makes is in queues, channels and workers whose names begin with ``load-``: so it is found again.
"""

# What messages and attempts are about: the tasks of the shop, by number.  make_sales_report takes no argument, and
# redeem_voucher two.
TASK = """
    (array['tasks.send_receipt', 'tasks.book_courier', 'tasks.redeem_voucher', 'tasks.send_reminder',
           'tasks.quote_currencies', 'tasks.make_sales_report'])[1 + {number} %% 6]
"""
CONTENT = """
    jsonb_build_object('kwargs', '{{}}'::jsonb, 'args', case {number} %% 6
        when 2 then jsonb_build_array(1 + i %% 10, 'TEA-' || i %% 100)
        when 5 then '[]'::jsonb
        else jsonb_build_array(1 + i %% 10) end)
"""

# Ids for all of them: the messages of the history have the lower ones.
RESERVE = """
select setval(s.name, nextval(s.name) + %(messages)s + %(attempts)s) - %(messages)s - %(attempts)s
from (select pg_get_serial_sequence('pgqueue_message', 'id') as name) as s
"""

# A third of the messages or so are one flood, which stands together in the table as one enqueue of many leaves it.  The
# kinds of the others are spread over it.
MESSAGES = f"""
insert into pgqueue_message (
    id, created_at, dequeue_at, in_line, unlock_at, locked_at, worker, attempt, max_attempts, after_ids, after_policy,
    checks, awaited_id, priority, queue, channel, task, content, progress, last_error, parked_at, unknown_since,
    suspended_attempt, awaited_event)
select %(first)s + i, created_at,
       case kind
           when 'scheduled' then v_now + 600000 + (random() * 7 * 86400000)::bigint
           when 'retry' then v_now + 600000 + (random() * 3600000)::bigint
           when 'paid' then v_now + 86400000 + (random() * 86400000)::bigint
           when 'after' then 9223372036854775807
           when 'approval' then 9223372036854775807
           when 'parked' then 9223372036854775806
           else pgqueue_to_epoch(created_at) end,
       kind in ('flood', 'ready', 'raw', 'running', 'expired'),
       case kind when 'running' then v_now + 3600000 when 'expired' then v_now - 600000 end,
       case kind when 'running' then greatest(created_at, %(at)s - random() * interval '50 minutes')
                 when 'expired' then %(at)s - interval '20 minutes' end,
       case kind when 'running' then 'load-worker-' || 1 + i %% 12 when 'expired' then 'load-worker-gone' end,
       case kind when 'retry' then 1 + i %% 3 when 'ready' then 0 when 'flood' then 0 when 'scheduled' then 0
                 when 'after' then 0 when 'raw' then 0 when 'parked' then 0 else 1 end,
       case when kind in ('paid', 'approval') then 11 else 5 end,
       case kind when 'after' then array[%(first)s + 1 + i %% greatest(1, %(flood)s)] end,
       case kind when 'after' then 'finished' end,
       case kind when 'after' then 0 end,
       case kind when 'after' then %(first)s + 1 + i %% greatest(1, %(flood)s) end,
       case when i %% 11 = 0 then 10 when i %% 13 = 0 then -10 else 0 end,
       queue,
       case when i %% 5 = 1 and kind in ('ready', 'scheduled', 'running')
            then 'load-tenant-' || 1 + floor(%(channels)s * power(random(), 2))::integer end,
       case kind when 'raw' then null
                 when 'parked' then 'example_project.shop.tasks.removed_by_a_deploy'
                 when 'paid' then 'example_project.shop.fulfilment.fulfil'
                 when 'approval' then 'example_project.shop.fulfilment.fulfil'
                 else 'example_project.shop.' || {TASK.format(number="place")} end,
       case when kind in ('paid', 'approval', 'parked') then
                jsonb_build_object('kwargs', '{{}}'::jsonb, 'args', jsonb_build_array(1 + i %% 10))
            when kind = 'raw' then jsonb_build_object('order', 1 + i %% 10)
            else {CONTENT.format(number="place")} end,
       case when kind = 'running' and i %% 3 = 0 then
           jsonb_build_object('fraction', round(random()::numeric, 2), 'text', 'line ' || i %% 900 || ' of 900') end,
       case kind when 'retry' then 'ConnectionResetError: [Errno 104] Connection reset by peer'
                 when 'parked' then 'UnknownTask: example_project.shop.tasks.removed_by_a_deploy does not exist.' end,
       case kind when 'parked' then v_now - 7200000 end,
       case kind when 'parked' then v_now - 7200000 end,
       case when kind in ('paid', 'approval') then 1 end,
       case kind when 'paid' then 'order-paid:load-' || i
                 when 'approval' then 'pgqueue:approval:' || %(first)s + i || ':release' end
from (
    select i, v_now, kind, place,
           %(at)s - case kind when 'flood' then (1 - i::float8 / greatest(1, %(flood)s)) * interval '40 minutes'
                              else random() * interval '3 days' + interval '15 minutes' end as created_at,
           case kind when 'flood' then 'load-bulk' else (%(queues)s::text[])[1 + place] end as queue
    from (
        select i, pgqueue_to_epoch(%(at)s) as v_now,
               case when i <= %(flood)s then 'flood' when k < 540 then 'ready' when k < 740 then 'scheduled'
                    when k < 800 then 'retry' when k < 860 then 'after' when k < 880 then 'paid'
                    when k < 890 then 'approval' when k < 920 then 'running' when k < 925 then 'expired'
                    when k < 940 then 'parked' else 'raw' end as kind,
               -- Few queues have much, and many have little.
               floor(cardinality(%(queues)s::text[]) * power(random(), 2))::integer as place
        from generate_series(1, %(messages)s) as i cross join lateral (select i %% 1000 * 617 %% 1000) as d (k)
    ) as kinds
) as m
order by i
"""  # noqa: S608 - no value is in it

APPROVALS = """
insert into pgqueue_approval (message_id, asked_at, name, permission, details)
select m.id, m.created_at, 'release', 'shop.change_order', jsonb_build_object('order', m.content -> 'args' -> 0)
from pgqueue_message m
where starts_with(m.queue, 'load-') and starts_with(m.awaited_event, 'pgqueue:approval:')
"""
STEPS = """
insert into pgqueue_step (message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, result)
select m.id, now(), m.created_at, m.created_at, nullif(m.dequeue_at, 9223372036854775807), 1,
       s.kind, s.status, s.name, s.result
from pgqueue_message m
cross join lateral (values
    ('step', 'done', 'bill', 'null'::jsonb),
    (case when starts_with(m.awaited_event, 'pgqueue:') then 'approval' else 'event' end, 'waiting',
     case when starts_with(m.awaited_event, 'pgqueue:') then 'release' else m.awaited_event end, null)
) as s (kind, status, name, result)
where starts_with(m.queue, 'load-') and m.suspended_attempt is not null
"""

# Alive for an hour, as a worker that rests; the last one was killed.
WORKERS = """
insert into pgqueue_worker (id, started_at, seen_at, pid, slots, hostname, queues, version, silent_until)
select 'load-worker-' || n, %(at)s - interval '5 hours',
       %(at)s, 4000 + n, %(slots)s, 'host-' || 1 + n %% 3, %(served)s::text[], '2.' || n %% 2,
       pgqueue_to_epoch(%(at)s) + 3600000
from generate_series(1, 12) as n
union all
select 'load-worker-gone', %(at)s - interval '5 hours', %(at)s - interval '20 minutes', 4999, 8, 'host-4', null, '2.0',
       null
"""
PAUSE = """
insert into pgqueue_queue (name, paused_at, paused_by)
select name, %(at)s - interval '2 days', 'demo_load' from unnest(%(paused)s::text[]) as p (name)
on conflict (name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by
"""
LIMITS = """
select pgqueue_channel_set('load-tenant-' || n, p_max_concurrency => 1 + n %% 20)
from generate_series(1, %(channels)s, 3) as n
"""

PARTITIONS = """
select pgqueue_attempt_partition((%(at)s at time zone 'UTC')::date - n) from generate_series(0, %(days)s) as n
"""

# Ids, times and transactions grow together, as those of attempts that have really ended.
ATTEMPTS = f"""
insert into pgqueue_attempt (
    message_id, created_at, dequeue_at, started_at, finished_at, attempt, max_attempts, priority, final, status, queue,
    channel, task, worker, error_class, error_message, traceback, result, content)
select message_id, created_at, pgqueue_to_epoch(created_at), case when status <> 'cancelled' then started_at end,
       finished_at, attempt, 5, 0, status not in ('retried', 'deferred', 'lost'), status, queue,
       case when i %% 5 = 1 then 'load-tenant-' || 1 + i %% %(channels)s end,
       'example_project.shop.' || {TASK.format(number="place")},
       case when status <> 'cancelled' then 'load-worker-' || 1 + i %% 12 end,
       e.class, replace(e.message, '#', (i %% 100000)::text),
       case when e.file is not null then format(
           E'Traceback (most recent call last):\\n'
           '  File "/srv/lib/django_pgqueue/worker/run/execution.py", line 214, in call\\n'
           '    return task.call(arguments)\\n'
           '  File "%%s", line %%s, in %%s\\n    %%s\\n%%s: %%s\\n',
           e.file, e.line, e.function, e.code, e.class, replace(e.message, '#', (i %% 100000)::text)) end,
       case status when 'succeeded' then to_jsonb('done with ' || i %% 10) end,
       case when status not in ('retried', 'deferred', 'lost') then {CONTENT.format(number="place")} end
from (
    select h.*, finished_at - run * interval '1 second' as started_at,
           finished_at - (run + wait) * interval '1 second' as created_at,
           case when h.status_of = 'lost' then 9 when h.status_of not in ('failed', 'retried') then 0
                else 1 + (h.place + (i / 20 %% 2)) %% 8 end as error,
           status_of as status
    from (
        select t.*,
               -- The message of a retried attempt comes again soon, and ends.
               %(first)s + case i %% 20 when 7 then i - 7 else i end as message_id,
               case i %% 20 when 7 then 2 else 1 end as attempt,
               case when i %% 20 = 0 then 'retried'
                    when i %% 20 = 7 then case when i %% 60 = 7 then 'failed' else 'succeeded' end
                    when t.place = 4 and finished_at > %(at)s - interval '40 minutes' and i %% 2 = 0 then 'failed'
                    when i %% 300 = 1 then 'failed' when i %% 100 = 2 then 'deferred' when i %% 200 = 3 then 'cancelled'
                    when i %% 500 = 4 then 'lost' else 'succeeded' end as status_of,
               (%(queues)s::text[])[1 + t.place] as queue
        from (
            select i, %(at)s - %(days)s * interval '1 day' * (1 - power(i::float8 / %(attempts)s, 0.7)) as finished_at,
                   -ln(1 - random()) * (0.05 + i %% 6 * 0.2) as run, -ln(1 - random()) * (0.5 + i %% 7) as wait,
                   floor(cardinality(%(queues)s::text[]) * power(random(), 2))::integer as place
            from generate_series(%(low)s, %(high)s) as i
        ) as t
    ) as h
) as a
left join (values
    (1, 'smtplib.SMTPServerDisconnected', 'Connection # unexpectedly closed',
        '/srv/shop/mail.py', 88, 'send', 'server.send(mail)'),
    (2, 'requests.exceptions.ReadTimeout', 'Read timed out after # ms',
        '/srv/shop/courier.py', 41, 'call', 'answer = post(url)'),
    (3, 'builtins.KeyError', '''sku-#''',
        '/srv/shop/stock.py', 17, 'take', 'shelf[sku] -= 1'),
    (4, 'django.db.utils.IntegrityError', 'Key (order_id)=(#) already exists.',
        '/srv/shop/models.py', 203, 'save', 'super().save()'),
    (5, 'decimal.InvalidOperation', 'order # has no rate',
        '/srv/shop/bank.py', 64, 'convert', 'return total * rate'),
    (6, 'example_project.shop.tasks.CourierBusy', 'The courier''s line is busy (call #).',
        '/srv/shop/tasks.py', 71, 'book_courier', 'raise CourierBusy(problem)'),
    (7, 'builtins.MemoryError', 'image # is too large',
        '/srv/shop/images.py', 130, 'resize', 'buffer = bytearray(size)'),
    (8, 'example_project.shop.tasks.VoucherExpired', 'Voucher TEA-# has expired.',
        '/srv/shop/tasks.py', 83, 'redeem_voucher', 'raise VoucherExpired(problem)'),
    (9, 'django_pgqueue.exceptions.AttemptLost', 'The worker went away.', null, null, null, null)
) as e (number, class, message, file, line, function, code) on e.number = a.error
order by i
"""  # noqa: S608 - as above

# Whether a table has rows that the load did not make: then its own are deleted one by one.
OTHERS = {
    "pgqueue_message": "select exists (select from pgqueue_message where not starts_with(queue, 'load-'))",
    "pgqueue_attempt": "select exists (select from pgqueue_attempt where not starts_with(queue, 'load-'))",
}
OF_MESSAGES = "where exists (select from pgqueue_message m where m.id = message_id and starts_with(m.queue, 'load-'))"
CLEAR_DURABLE = [f"delete from pgqueue_approval {OF_MESSAGES}", f"delete from pgqueue_step {OF_MESSAGES}"]  # noqa: S608 - as above
CLEAR = [
    "delete from pgqueue_arrival where starts_with(channel, 'load-')",
    "delete from pgqueue_lane where starts_with(channel, 'load-')",
    "delete from pgqueue_channel where starts_with(name, 'load-')",
    "delete from pgqueue_queue where starts_with(name, 'load-')",
    "delete from pgqueue_worker where starts_with(id, 'load-')",
    "delete from pgqueue_rollup where starts_with(queue, 'load-')",
]
