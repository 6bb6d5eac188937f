-- How the work behind the figures fares, as one row: beat and worker, each job, what is derived, and
-- which days have partitions (the least of the five event tables).
SELECT jsonb_build_object(
    'at', now(),
    'beat_at', (SELECT at FROM heartbeat WHERE name = 'worker'),
    'jobs', COALESCE((SELECT jsonb_agg(to_jsonb(j) ORDER BY j.name) FROM background_job j), '[]'),
    'minute', (SELECT upto FROM rollup_watermark WHERE grain = 'minute'),
    'hour', (SELECT upto FROM rollup_watermark WHERE grain = 'hour'),
    'minutes_waiting', (SELECT count(*) FROM rollup_dirty WHERE grain = 'minute'),
    'hours_waiting', (SELECT count(*) FROM rollup_dirty WHERE grain = 'hour'),
    'claims', COALESCE((
        SELECT jsonb_agg(jsonb_build_object(
            'gateway', g.name, 'mints', c.lately, 'refused', c.refused, 'why', c.why,
            'at', GREATEST(c.refused_at, c.minted_at)) ORDER BY g.name)
        FROM (
            SELECT gateway_id, why, refused_at,
                CASE WHEN refused_at > now() - interval '24 hours' THEN refused ELSE 0 END
                    AS refused,
                (SELECT max(at) FROM unnest(mints) AS at) AS minted_at,
                (SELECT count(*) FROM unnest(mints) AS at WHERE at > now() - interval '24 hours')
                    AS lately
            FROM epoch_claim
        ) AS c
        JOIN gateway g ON g.id = c.gateway_id
        WHERE c.refused > 0 OR c.lately > 1), '[]'),
    'retention_days', %(retention_days)s::int,
    'first_day', days.first_day,
    'last_day', days.last_day)::text
FROM (
    SELECT min(first_day) AS first_day, min(last_day) AS last_day
    FROM (
        SELECT min(to_date(right(part.relname, 8), 'YYYYMMDD')) AS first_day,
            max(to_date(right(part.relname, 8), 'YYYYMMDD')) AS last_day
        FROM pg_inherits inherits
        JOIN pg_class parent ON parent.oid = inherits.inhparent
        JOIN pg_class part ON part.oid = inherits.inhrelid
        WHERE parent.relname IN ('attempt', 'refusal', 'outcome', 'transition', 'budget_event')
          AND parent.relkind = 'p' AND part.relkind = 'r'
          AND parent.relnamespace = current_schema()::regnamespace
        GROUP BY parent.relname
    ) AS tables
) AS days
