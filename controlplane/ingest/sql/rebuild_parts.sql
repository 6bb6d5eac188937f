-- The histograms of the minutes of [start, end) from the raw rows, one part for each minute. The
-- caller has emptied the range.
INSERT INTO rollup_minute_part (gateway_id, circuit_id, minute, latency, first_byte)
SELECT gateway_id, circuit_id, date_trunc('minute', occurred_at, 'UTC'),
    COALESCE(switchgear_compact(array_agg((switchgear_bucket(ended_ms)::bigint << 32) + 1)
        FILTER (WHERE ended_ms IS NOT NULL)), '{}'),
    COALESCE(switchgear_compact(array_agg((switchgear_bucket(first_byte_ms)::bigint << 32) + 1)
        FILTER (WHERE first_byte_ms IS NOT NULL)), '{}')
FROM attempt
WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
  AND (ended_ms IS NOT NULL OR first_byte_ms IS NOT NULL)
GROUP BY 1, 2, 3
