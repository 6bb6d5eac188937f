-- The ends of requests by minute, of [start, end), from the raw rows. The caller has emptied the
-- range.
INSERT INTO rollup_minute_request (gateway_id, minute, requests, succeeded, latency, waited)
SELECT gateway_id, date_trunc('minute', occurred_at, 'UTC'),
    count(*), count(*) FILTER (WHERE success),
    COALESCE(switchgear_compact(array_agg((switchgear_bucket(latency_ms)::bigint << 32) + 1)
        FILTER (WHERE latency_ms IS NOT NULL)), '{}'),
    switchgear_compact(array_agg((switchgear_bucket(waited_ms)::bigint << 32) + 1))
FROM outcome
WHERE occurred_at >= %(start)s AND occurred_at < %(end)s AND NOT explicit
GROUP BY 1, 2
