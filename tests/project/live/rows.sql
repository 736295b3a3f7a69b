-- Messages and history in all states, made by the functions of release 0.1.0, in a queue that no worker serves.
-- It is run in a database of that release.

-- 100,000 waiting messages: ready and scheduled, of all priorities, with and without headers and a channel.
insert into pgqueue_message (queue, task, content, priority, dequeue_at)
select 'kept', 'tests.support.site.tasks.nothing', jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb),
       n % 201 - 100, case when n % 2 = 0 then pgqueue_now() + 86400000 + n else pgqueue_now() end
from generate_series(1, 95000) as n;
select count(*) from generate_series(1, 5) as b,
    lateral pgqueue_message_create_many((
        select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'content', jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb),
            'queue', 'kept', 'task', 'tests.support.site.tasks.nothing', 'priority', n % 201 - 100,
            'dequeue_at', case when n % 2 = 0 then pgqueue_now() + 86400000 + n end,
            'headers', case when n % 3 = 0 then '{"trace": "a"}'::jsonb end,
            'channel', case when n % 10 = 0 then 'channel ' || n % 7 end)))
        from generate_series(b * 1000, b * 1000 + 999) as n
    ));

-- Raw messages, unique keys, messages that wait for others.
select pgqueue_message_create('"raw"', 'kept');
select pgqueue_message_create_unique('key', '{"args": [], "kwargs": {}}', 'kept', 'tests.support.site.tasks.nothing');
select pgqueue_message_create_unique('started', '{"args": [], "kwargs": {}}', 'kept', 'tests.support.site.tasks.nothing',
                                     p_until_started => true);
select pgqueue_message_create_after(array(select id from pgqueue_message where queue = 'kept' order by id desc limit 2),
                                    '{"args": [], "kwargs": {}}', 'kept', 'tests.support.site.tasks.nothing');
select pgqueue_channel_set('channel 3', 5, 100000, 1000);
select pgqueue_queue_pause('paused', 'a test');

-- Taken by a worker that is no more: running, and each end of an attempt.
create temporary table taken as
    select m.id, m.attempt, row_number() over (order by m.id) as n
    from pgqueue_message_dequeue('{kept}', 700, 86400000, 'gone', p_tasks => true, p_brief => false) as m;
select count(*) from pgqueue_message_complete(
    array(select id from taken where n <= 200 order by n), array(select attempt from taken where n <= 200 order by n), 'gone');
select count(pgqueue_message_fail(id, attempt, 'gone', 'ValueError: no')) from taken where n between 201 and 300;
select count(pgqueue_message_defer(id, attempt, 'gone', pgqueue_now() + 86400000, '{"n": 1}', 'KeyError: 1', p_max_attempts => 5))
from taken where n between 301 and 400;
select count(pgqueue_message_cancel(id, attempt, 'gone')) from taken where n between 401 and 450;
select count(*) from pgqueue_message_request_cancel(array(select id from taken where n between 451 and 500));
update pgqueue_message set unlock_at = pgqueue_now() - 1 where id in (select id from taken where n between 501 and 550);
select pgqueue_message_expire(100, '{kept}', true);
update pgqueue_message set progress = '{"done": 1}' where id in (select id from taken where n > 650);
