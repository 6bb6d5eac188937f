-- The minute rollup of [start, end) from the raw rows: the same sums as domain/rollup, in SQL, so
-- that either can be held against the other. The caller has emptied the range.
WITH sent AS (
    SELECT gateway_id, circuit_id, date_trunc('minute', occurred_at, 'UTC') AS minute,
        count(*) AS attempts,
        count(*) FILTER (WHERE role = 'first') AS firsts,
        count(*) FILTER (WHERE role = 'retry') AS retries,
        count(*) FILTER (WHERE role = 'fallback') AS fallbacks,
        count(*) FILTER (WHERE role = 'redelivery') AS redeliveries,
        count(*) FILTER (WHERE rerouted) AS rerouted,
        count(*) FILTER (WHERE verdict = 'success') AS succeeded,
        count(*) FILTER (WHERE verdict = 'retryable') AS retryable,
        count(*) FILTER (WHERE verdict = 'permanent') AS permanent,
        count(*) FILTER (WHERE verdict = 'partial') AS partial,
        count(*) FILTER (WHERE verdict = 'client_cancelled') AS client_cancelled,
        count(*) FILTER (WHERE verdict = 'client_deadline') AS client_deadline,
        count(*) FILTER (WHERE verdict = 'local_fault') AS local_fault,
        count(*) FILTER (WHERE counts) AS failed,
        count(*) FILTER (WHERE served) AS served,
        sum(COALESCE(input_tokens, 0)) AS input_tokens,
        sum(COALESCE(cached_tokens, 0)) AS cached_tokens,
        sum(COALESCE(cache_write_tokens, 0)) AS cache_write_tokens,
        sum(COALESCE(output_tokens, 0)) AS output_tokens,
        sum(COALESCE(reasoning_tokens, 0)) AS reasoning_tokens,
        COALESCE(sum(COALESCE(input_tokens, 0) + COALESCE(cached_tokens, 0)
            + COALESCE(cache_write_tokens, 0) + COALESCE(output_tokens, 0))
            FILTER (WHERE NOT served), 0) AS wasted_tokens,
        count(*) FILTER (WHERE cost_gbp IS NULL) AS unpriced,
        count(*) FILTER (WHERE cost_gbp IS NULL AND NOT served) AS wasted_unpriced,
        count(*) FILTER (WHERE cost_status = 'priced') AS cost_priced,
        count(*) FILTER (WHERE cost_status = 'estimated') AS cost_estimated,
        count(*) FILTER (WHERE cost_status = 'unpriced') AS cost_unpriced,
        count(*) FILTER (WHERE cost_status = 'not_billed') AS cost_not_billed,
        count(*) FILTER (WHERE cost_status = 'unknown') AS cost_unknown,
        count(*) FILTER (WHERE cost_status = 'invalid_usage') AS cost_invalid_usage,
        COALESCE(sum(ended_ms), 0) AS ended_ms_sum,
        count(ended_ms) AS ended_count,
        COALESCE(sum(cost_gbp), 0) AS cost_gbp,
        COALESCE(sum(cost_gbp) FILTER (WHERE NOT served), 0) AS wasted_gbp,
        COALESCE(sum(cost_gbp) FILTER (WHERE cost_status = 'estimated'), 0) AS estimated_gbp,
        COALESCE(sum(cost_gbp) FILTER (WHERE cost_status = 'estimated' AND NOT served), 0)
            AS wasted_estimated_gbp
    FROM attempt WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
    GROUP BY 1, 2, 3
), refused AS (
    SELECT gateway_id, circuit_id, date_trunc('minute', occurred_at, 'UTC') AS minute,
        count(*) FILTER (WHERE NOT would_have AND gate = 'breaker') AS refused_breaker,
        count(*) FILTER (WHERE NOT would_have AND gate = 'override') AS refused_override,
        count(*) FILTER (WHERE NOT would_have AND gate = 'budget') AS refused_budget,
        count(*) FILTER (WHERE NOT would_have AND gate NOT IN ('breaker', 'override', 'budget'))
            AS refused_other,
        count(*) FILTER (WHERE NOT would_have AND gate = 'rate') AS refused_rate,
        count(*) FILTER (WHERE NOT would_have AND gate = 'concurrency') AS refused_concurrency,
        count(*) FILTER (WHERE NOT would_have AND gate = 'key') AS refused_key,
        count(*) FILTER (WHERE NOT would_have AND gate = 'deadline') AS refused_deadline,
        count(*) FILTER (WHERE NOT would_have AND gate = 'policy') AS refused_policy,
        count(*) FILTER (WHERE NOT would_have AND gate = 'cost') AS refused_cost,
        count(*) FILTER (WHERE would_have) AS would_refuse
    FROM refusal WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
    GROUP BY 1, 2, 3
)
INSERT INTO rollup_minute (
    gateway_id, circuit_id, minute,
    attempts, firsts, retries, fallbacks, redeliveries, rerouted,
    succeeded, retryable, permanent, partial, client_cancelled, client_deadline, local_fault,
    failed, served,
    refused_breaker, refused_override, refused_budget, refused_other, refused_rate,
    refused_concurrency, refused_key, refused_deadline, refused_policy, refused_cost, would_refuse,
    input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    wasted_tokens, unpriced, wasted_unpriced, cost_priced, cost_estimated, cost_unpriced,
    cost_not_billed, cost_unknown, cost_invalid_usage, ended_ms_sum, ended_count,
    cost_gbp, wasted_gbp, estimated_gbp, wasted_estimated_gbp)
SELECT gateway_id, circuit_id, minute,
    COALESCE(attempts, 0), COALESCE(firsts, 0), COALESCE(retries, 0), COALESCE(fallbacks, 0),
    COALESCE(redeliveries, 0), COALESCE(rerouted, 0),
    COALESCE(succeeded, 0), COALESCE(retryable, 0), COALESCE(permanent, 0), COALESCE(partial, 0),
    COALESCE(client_cancelled, 0), COALESCE(client_deadline, 0), COALESCE(local_fault, 0),
    COALESCE(failed, 0), COALESCE(served, 0),
    COALESCE(refused_breaker, 0), COALESCE(refused_override, 0), COALESCE(refused_budget, 0),
    COALESCE(refused_other, 0), COALESCE(refused_rate, 0), COALESCE(refused_concurrency, 0),
    COALESCE(refused_key, 0), COALESCE(refused_deadline, 0), COALESCE(refused_policy, 0),
    COALESCE(refused_cost, 0), COALESCE(would_refuse, 0),
    COALESCE(input_tokens, 0), COALESCE(cached_tokens, 0), COALESCE(cache_write_tokens, 0),
    COALESCE(output_tokens, 0), COALESCE(reasoning_tokens, 0), COALESCE(wasted_tokens, 0),
    COALESCE(unpriced, 0), COALESCE(wasted_unpriced, 0), COALESCE(cost_priced, 0),
    COALESCE(cost_estimated, 0), COALESCE(cost_unpriced, 0), COALESCE(cost_not_billed, 0),
    COALESCE(cost_unknown, 0), COALESCE(cost_invalid_usage, 0),
    COALESCE(ended_ms_sum, 0), COALESCE(ended_count, 0),
    COALESCE(cost_gbp, 0), COALESCE(wasted_gbp, 0), COALESCE(estimated_gbp, 0),
    COALESCE(wasted_estimated_gbp, 0)
FROM sent FULL JOIN refused USING (gateway_id, circuit_id, minute)
