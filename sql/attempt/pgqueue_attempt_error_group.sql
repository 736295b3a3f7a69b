create or replace function pgqueue_attempt_error_group(p_class text, p_message text, p_traceback text) returns text
language sql immutable parallel safe
set search_path from current
as $$
    -- Returns the group of an error: equal for errors of one class that come from the same function of the same file,
    -- whatever the line, so that a deploy that moves lines makes no new group.  Without a traceback the message counts,
    -- with its numbers, quoted texts, hexadecimal words and the names of workers left out.  Of an unknown task only its path
    -- counts, which is the first in the message.
    select left(md5(concat_ws(E'\n', coalesce(p_class, ''), coalesce(
        case when p_class = 'django_pgqueue.exceptions.UnknownTask' then coalesce(
            substring(left(p_message, 300) from '^No worker has known the task ([^ ]+) for '),
            substring(left(p_message, 300) from '^(?:The task )?''([^'']+)'''))
        end,
        (select substring(t.place from E'([^/\\\\"]+"), line')
                || substring(t.place from E', in ([^\n]+)$')
         from (select substring(right(p_traceback, 4000) from E'.*(File "[^"]+", line [0-9]+, in [^\n]+)') as place) as t),
        regexp_replace(left(p_message, 300), E'\\mworker [^ "'']+|"[^"]*"|''[^'']*''|\\m(0x)?[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*\\M', '?', 'g'),
        ''))), 12)
$$;
