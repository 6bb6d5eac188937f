-- How many hours of a range, up to now, are not derived or are marked to be derived anew.
SELECT count(*)
FROM generate_series(
    date_trunc('hour', %(start)s::timestamptz, 'UTC'),
    least(%(end)s::timestamptz, %(now)s) - interval '1 microsecond',
    interval '1 hour') AS hour
WHERE hour >= (SELECT upto FROM rollup_watermark WHERE grain = 'hour')
   OR hour IN (SELECT at FROM rollup_dirty WHERE grain = 'hour')
