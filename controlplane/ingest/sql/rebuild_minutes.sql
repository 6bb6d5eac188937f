-- The minute rollup of [start, end) from the raw rows: the same counts as domain/rollup, in SQL, so
-- that either can be held against the other. The caller has emptied the range.
INSERT INTO rollup_minute (
    gateway_id, circuit_id, minute,
    attempts, firsts, retries, fallbacks, redeliveries, succeeded, failed, served,
    refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
    input_tokens, cached_tokens, cache_write_tokens, output_tokens, wasted_tokens,
    cost_gbp, wasted_gbp, unpriced, ended_ms_sum, ended_count)
SELECT gateway_id, circuit_id, minute,
    sum(attempts), sum(firsts), sum(retries), sum(fallbacks), sum(redeliveries),
    sum(succeeded), sum(failed), sum(served),
    sum(refused_breaker), sum(refused_override), sum(refused_budget), sum(refused_other),
    sum(would_refuse),
    sum(input_tokens), sum(cached_tokens), sum(cache_write_tokens), sum(output_tokens),
    sum(wasted_tokens), sum(cost_gbp), sum(wasted_gbp), sum(unpriced),
    sum(ended_ms_sum), sum(ended_count)
FROM (
    SELECT gateway_id, circuit_id, date_trunc('minute', occurred_at, 'UTC') AS minute,
        1 AS attempts,
        (role = 'first')::int AS firsts,
        (role = 'retry')::int AS retries,
        (role = 'fallback')::int AS fallbacks,
        (role = 'redelivery')::int AS redeliveries,
        (verdict = 'success')::int AS succeeded,
        counts::int AS failed,
        served::int AS served,
        0 AS refused_breaker, 0 AS refused_override, 0 AS refused_budget, 0 AS refused_other,
        0 AS would_refuse,
        COALESCE(input_tokens, 0) AS input_tokens,
        COALESCE(cached_tokens, 0) AS cached_tokens,
        COALESCE(cache_write_tokens, 0) AS cache_write_tokens,
        COALESCE(output_tokens, 0) AS output_tokens,
        CASE WHEN served THEN 0 ELSE
            COALESCE(input_tokens, 0) + COALESCE(cached_tokens, 0)
            + COALESCE(cache_write_tokens, 0) + COALESCE(output_tokens, 0) END AS wasted_tokens,
        COALESCE(cost_gbp, 0) AS cost_gbp,
        CASE WHEN served THEN 0 ELSE COALESCE(cost_gbp, 0) END AS wasted_gbp,
        (cost_gbp IS NULL)::int AS unpriced,
        COALESCE(ended_ms, 0)::bigint AS ended_ms_sum,
        (ended_ms IS NOT NULL)::int AS ended_count
    FROM attempt WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
    UNION ALL
    SELECT gateway_id, circuit_id, date_trunc('minute', occurred_at, 'UTC'),
        0, 0, 0, 0, 0, 0, 0, 0,
        (gate = 'breaker' AND NOT would_have)::int,
        (gate = 'override' AND NOT would_have)::int,
        (gate = 'budget' AND NOT would_have)::int,
        (gate NOT IN ('breaker', 'override', 'budget') AND NOT would_have)::int,
        would_have::int,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    FROM refusal WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
) AS counted
GROUP BY gateway_id, circuit_id, minute
