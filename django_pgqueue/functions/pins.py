"""The ``search_path`` of the queue's functions: each function is pinned to the schema in which it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.functions.connection import Connection

STRAYED = """
with own as (
    select c.relnamespace as oid from pg_class c where c.oid = to_regclass('pgqueue_message')
), searched as (
    select p.oid, substr(s.setting, 13) as path, o.oid as own, (
        select t.relnamespace
        from regexp_matches(substr(s.setting, 13), '"(?:[^"]|"")+"|[^, ]+', 'g') with ordinality as e (names, place)
        join pg_namespace n
          on n.nspname = case e.names[1]
                 when '"$user"' then current_user::text
                 else replace(regexp_replace(e.names[1], '^"|"$', '', 'g'), '""', '"')
             end
        join pg_class t on t.relnamespace = n.oid and t.relname = 'pgqueue_message'
        order by e.place
        limit 1
    ) as found
    from own o
    join pg_proc p on p.pronamespace = o.oid and p.proname like 'pgqueue\\_%%'
    cross join lateral unnest(p.proconfig) as s (setting)
    where s.setting like 'search_path=%%'
)
select s.own::regnamespace::text, s.path, s.found::regnamespace::text, count(*)
from searched s
where s.found is distinct from s.own
group by 1, 2, 3
order by 1, 2, 3
"""

APART = """
select m.relnamespace::regnamespace::text, min(p.pronamespace::regnamespace::text)
from pg_class m
join pg_proc p on p.proname = 'pgqueue_message_create'
where m.oid = to_regclass('pgqueue_message')
  and not exists (select from pg_proc o where o.pronamespace = m.relnamespace and o.proname = p.proname)
  and not exists (select from pg_class t where t.relnamespace = p.pronamespace and t.relname = 'pgqueue_message')
group by 1
"""


def apart(connection: Connection) -> str | None:
    """Returns an error text if the tables were moved to another schema than the functions.  None: they were not."""
    with connection.cursor() as cursor:
        cursor.execute(APART, ())
        row = cursor.fetchone()
    return row and f"The tables of the queue are in the schema {row[0]}, and its functions in {row[1]}."


def strayed(connection: Connection) -> str | None:
    """Returns an error text if functions search another schema than their own, as after a rename.  None: none does."""
    if (moved := apart(connection)) is not None:
        return moved
    with connection.cursor() as cursor:
        cursor.execute(STRAYED, ())
        rows = cursor.fetchall()
    if not rows:
        return None
    own = rows[0][0]
    number = sum(count for *_, count in rows)
    paths = ", ".join(sorted({path for _, path, _, _ in rows}))
    others = sorted({found for _, _, found, _ in rows if found is not None})
    effect = (
        f"These functions use the tables of the queue in {', '.join(others)}"
        if others
        else "These functions find no tables"
    )
    return f"{number} functions of the queue in the schema {own} search {paths}. {effect}."
