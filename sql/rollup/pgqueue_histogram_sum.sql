create or replace function pgqueue_histogram_sum(p_one jsonb, p_other jsonb) returns jsonb
language sql immutable parallel safe
as $$
    -- Returns the sum of two histograms {"bucket": count}.
    select coalesce(jsonb_object_agg(s.bucket, s.times), '{}')
    from (
        select e.key as bucket, sum(e.value::bigint) as times
        from (select * from jsonb_each_text(p_one) union all select * from jsonb_each_text(p_other)) as e
        group by e.key
    ) as s
$$;
