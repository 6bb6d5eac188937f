-- Raw rows before the latest of these times are dropped (ingest/partitions): one row for each drop.
CREATE TABLE raw_dropped (
    upto timestamptz PRIMARY KEY
);
-- What was dropped before this was written down: where hours are derived of days that are gone.
INSERT INTO raw_dropped (upto)
SELECT first.day
FROM (
    SELECT min(to_timestamp(right(inhrelid::regclass::text, 8) || ' 00+00', 'YYYYMMDD HH24TZH')) AS day
    FROM pg_inherits WHERE inhparent = 'attempt'::regclass
) AS first
WHERE EXISTS (SELECT FROM rollup_hour WHERE hour < first.day);
