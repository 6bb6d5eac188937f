-- One hour [start, end) of both hour grains, from the raw rows and their tasks. The caller has
-- emptied it. By the rules of design 4.7: an attempt stands in the hour in which it was begun, for
-- its own circuit, tenant and route; a task in the hour in which it closed, once, for the circuit
-- of its last attempt. A task is judged by what is known of it now; a later word marks the hour as
-- dirty.
WITH failed_request AS (
    SELECT DISTINCT o.gateway_id, o.request
    FROM outcome o
    WHERE o.task IS NULL AND NOT o.explicit AND NOT o.success
      AND o.occurred_at >= %(start)s AND o.occurred_at < %(end)s::timestamptz + interval '1 day'
), sent AS (
    SELECT a.*, a.gateway_id AS g, a.circuit_id AS c, a.tenant AS t, a.route AS r,
        NOT a.served AS wasted,
        NOT a.served OR f.request IS NOT NULL
            OR NOT COALESCE(k.explicit_success, k.implicit_success, true) AS wasted_finally,
        COALESCE(input_tokens, 0) + COALESCE(cached_tokens, 0) + COALESCE(cache_write_tokens, 0)
            + COALESCE(output_tokens, 0) AS tokens
    FROM attempt a
    LEFT JOIN failed_request f
        ON f.gateway_id = a.gateway_id AND f.request = a.request AND a.task IS NULL
    LEFT JOIN task k
        ON k.gateway_id = a.gateway_id AND k.tenant = a.tenant AND k.task = a.task
    WHERE a.occurred_at >= %(start)s AND a.occurred_at < %(end)s
), attempts AS (
    SELECT g, c, t, r,
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
        sum(input_tokens) AS input_tokens,
        sum(cached_tokens) AS cached_tokens,
        sum(cache_write_tokens) AS cache_write_tokens,
        sum(output_tokens) AS output_tokens,
        sum(reasoning_tokens) AS reasoning_tokens,
        sum(tokens) FILTER (WHERE wasted) AS wasted_tokens,
        sum(tokens) FILTER (WHERE wasted_finally) AS wasted_final_tokens,
        count(*) FILTER (WHERE cost_gbp IS NULL) AS unpriced,
        count(*) FILTER (WHERE cost_gbp IS NULL AND wasted) AS wasted_unpriced,
        count(*) FILTER (WHERE cost_gbp IS NULL AND wasted_finally) AS wasted_final_unpriced,
        count(*) FILTER (WHERE cost_status = 'estimated') AS cost_estimated,
        sum(cost_gbp) AS cost_gbp,
        sum(cost_gbp) FILTER (WHERE wasted) AS wasted_gbp,
        sum(cost_gbp) FILTER (WHERE wasted_finally) AS wasted_final_gbp,
        sum(cost_gbp) FILTER (WHERE cost_status = 'estimated') AS estimated_gbp
    FROM sent GROUP BY g, c, t, r
), refusals AS (
    SELECT gateway_id AS g, circuit_id AS c, tenant AS t, route AS r,
        count(*) FILTER (WHERE NOT would_have AND gate = 'breaker') AS refused_breaker,
        count(*) FILTER (WHERE NOT would_have AND gate = 'override') AS refused_override,
        count(*) FILTER (WHERE NOT would_have AND gate = 'budget') AS refused_budget,
        count(*) FILTER (WHERE NOT would_have AND gate = 'rate') AS refused_rate,
        count(*) FILTER (WHERE NOT would_have AND gate = 'concurrency') AS refused_concurrency,
        count(*) FILTER (WHERE NOT would_have AND gate = 'key') AS refused_key,
        count(*) FILTER (WHERE NOT would_have AND gate = 'deadline') AS refused_deadline,
        count(*) FILTER (WHERE NOT would_have AND gate = 'policy') AS refused_policy,
        count(*) FILTER (WHERE NOT would_have AND gate = 'cost') AS refused_cost,
        count(*) FILTER (WHERE would_have) AS would_refuse
    FROM refusal WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
    GROUP BY 1, 2, 3, 4
), ends AS (
    SELECT gateway_id, request, tenant, route, task, success, latency_ms, waited_ms, occurred_at
    FROM outcome
    WHERE NOT explicit AND occurred_at >= %(start)s AND occurred_at < %(end)s
), last_of_request AS (
    -- The hour's own attempts are later than any before it: only of a request that has none here
    -- is the day before asked, by the index of requests.
    SELECT DISTINCT ON (s.gateway_id, s.request) s.gateway_id, s.request, s.circuit_id
    FROM sent s
    WHERE (s.gateway_id, s.request) IN (SELECT gateway_id, request FROM ends)
    ORDER BY s.gateway_id, s.request, s.occurred_at DESC, s.ordinal DESC, s.id DESC
), ended AS (
    SELECT o.gateway_id AS g, COALESCE(l.circuit_id, b.circuit_id, 0) AS c, o.tenant AS t,
        o.route AS r, o.task, o.success, o.latency_ms, o.waited_ms, o.occurred_at AS closed_at
    FROM ends o
    LEFT JOIN last_of_request l ON l.gateway_id = o.gateway_id AND l.request = o.request
    LEFT JOIN LATERAL (
        -- "+ 0" keeps the gateway out of the choice of an index: of a day that nothing is known of
        -- yet the planner took the gateway's events, all of them, for each request (20 s an hour).
        SELECT a.circuit_id FROM attempt a
        WHERE l.request IS NULL AND a.request = o.request AND a.gateway_id + 0 = o.gateway_id
          AND a.occurred_at >= %(start)s::timestamptz - interval '1 day'
          AND a.occurred_at < %(start)s
        ORDER BY a.occurred_at DESC, a.ordinal DESC, a.id DESC LIMIT 1
    ) AS b ON true
), closed_task AS (
    SELECT k.gateway_id AS g, COALESCE(l.circuit_id, 0) AS c, k.tenant AS t, k.route AS r,
        COALESCE(k.explicit_success, k.implicit_success) AS success,
        COALESCE(k.explicit_at, k.implicit_at + %(idle)s::interval) AS closed_at
    FROM task k
    LEFT JOIN LATERAL (
        SELECT a.circuit_id FROM attempt a
        WHERE a.gateway_id = k.gateway_id AND a.tenant = k.tenant AND a.task = k.task
          -- The last one is not older than a day before the task's first request, which most days
          -- are spared by.
          AND a.occurred_at >= greatest(
              %(start)s::timestamptz - interval '8 days', k.first_started_at - interval '1 day')
          AND a.occurred_at < %(end)s
        ORDER BY a.occurred_at DESC, a.ordinal DESC, a.id DESC LIMIT 1
    ) AS l ON true
    WHERE COALESCE(k.explicit_at, k.implicit_at) >= %(start)s::timestamptz - %(idle)s::interval
      AND COALESCE(k.explicit_at, k.implicit_at) < %(end)s
      AND COALESCE(k.explicit_at, k.implicit_at + %(idle)s::interval) >= %(start)s
      AND COALESCE(k.explicit_at, k.implicit_at + %(idle)s::interval) < %(end)s
), closed AS (
    SELECT g, c, t, r, success, closed_at FROM ended WHERE task IS NULL
    UNION ALL SELECT g, c, t, r, success, closed_at FROM closed_task
), tasks AS (
    SELECT g, c, t, r,
        count(*) FILTER (WHERE success) AS tasks_succeeded,
        count(*) FILTER (WHERE NOT success) AS tasks_failed
    FROM closed GROUP BY g, c, t, r
), by_quarter AS (
    INSERT INTO rollup_quarter (
        at, attempts, firsts, retries, fallbacks, redeliveries, succeeded, failed, unpriced,
        cost_estimated, wasted_unpriced, wasted_final_unpriced, tasks_succeeded, tasks_failed,
        cost_gbp, wasted_gbp, wasted_final_gbp)
    SELECT at, COALESCE(attempts, 0), COALESCE(firsts, 0), COALESCE(retries, 0),
        COALESCE(fallbacks, 0), COALESCE(redeliveries, 0), COALESCE(succeeded, 0),
        COALESCE(failed, 0), COALESCE(unpriced, 0), COALESCE(cost_estimated, 0),
        COALESCE(wasted_unpriced, 0), COALESCE(wasted_final_unpriced, 0),
        COALESCE(tasks_succeeded, 0), COALESCE(tasks_failed, 0), COALESCE(cost_gbp, 0),
        COALESCE(wasted_gbp, 0), COALESCE(wasted_final_gbp, 0)
    FROM (
        SELECT date_bin('15 minutes', occurred_at, %(start)s) AS at,
            count(*) AS attempts,
            count(*) FILTER (WHERE role = 'first') AS firsts,
            count(*) FILTER (WHERE role = 'retry') AS retries,
            count(*) FILTER (WHERE role = 'fallback') AS fallbacks,
            count(*) FILTER (WHERE role = 'redelivery') AS redeliveries,
            count(*) FILTER (WHERE verdict = 'success') AS succeeded,
            count(*) FILTER (WHERE counts) AS failed,
            count(*) FILTER (WHERE cost_gbp IS NULL) AS unpriced,
            count(*) FILTER (WHERE cost_status = 'estimated') AS cost_estimated,
            count(*) FILTER (WHERE cost_gbp IS NULL AND wasted) AS wasted_unpriced,
            count(*) FILTER (WHERE cost_gbp IS NULL AND wasted_finally) AS wasted_final_unpriced,
            sum(cost_gbp) AS cost_gbp,
            sum(cost_gbp) FILTER (WHERE wasted) AS wasted_gbp,
            sum(cost_gbp) FILTER (WHERE wasted_finally) AS wasted_final_gbp
        FROM sent GROUP BY 1
    ) AS of_attempts
    FULL JOIN (
        SELECT date_bin('15 minutes', closed_at, %(start)s) AS at,
            count(*) FILTER (WHERE success) AS tasks_succeeded,
            count(*) FILTER (WHERE NOT success) AS tasks_failed
        FROM closed GROUP BY 1
    ) AS of_tasks USING (at)
), requests AS (
    SELECT g, c, t, r, count(*) AS requests,
        count(*) FILTER (WHERE success) AS requests_succeeded
    FROM ended GROUP BY g, c, t, r
), timed AS (
    SELECT what, g, c, t, r, bucket::bigint AS bucket, count(*)::bigint AS n
    FROM (
        SELECT 'latency' AS what, g, c, t, r, switchgear_bucket(ended_ms) AS bucket
        FROM sent WHERE ended_ms IS NOT NULL
        UNION ALL
        SELECT 'first_byte', g, c, t, r, switchgear_bucket(first_byte_ms)
        FROM sent WHERE first_byte_ms IS NOT NULL
        UNION ALL
        SELECT 'request_latency', g, c, t, r, switchgear_bucket(latency_ms)
        FROM ended WHERE latency_ms IS NOT NULL
        UNION ALL
        SELECT 'waited', g, c, t, r, switchgear_bucket(waited_ms) FROM ended
    ) AS durations
    GROUP BY what, g, c, t, r, bucket
), base AS (
    SELECT *
    FROM attempts
    FULL JOIN refusals USING (g, c, t, r)
    FULL JOIN tasks USING (g, c, t, r)
    FULL JOIN requests USING (g, c, t, r)
), bins_of_gateway AS (
    -- Summed as rows: by switchgear_compact, a call for each group and histogram, it was most of
    -- the hour's work.
    SELECT g, c,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'latency') AS latency,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'first_byte') AS first_byte,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'request_latency') AS request_latency,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'waited') AS waited
    FROM (
        SELECT what, g, c, (bucket << 32) + sum(n)::bigint AS bin
        FROM timed GROUP BY what, g, c, bucket
    ) AS summed
    GROUP BY g, c
), by_gateway AS (
    INSERT INTO rollup_hour (
        gateway_id, circuit_id, hour,
        attempts, firsts, retries, fallbacks, redeliveries, rerouted, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed, served,
        refused_breaker, refused_override, refused_budget, refused_rate, refused_concurrency,
        refused_key, refused_deadline, refused_policy, refused_cost, would_refuse,
        input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
        wasted_tokens, wasted_final_tokens, unpriced, wasted_unpriced, wasted_final_unpriced,
        cost_estimated, tasks_succeeded, tasks_failed, requests, requests_succeeded, cost_gbp,
        wasted_gbp, wasted_final_gbp, estimated_gbp, latency, first_byte, request_latency,
        waited)
    SELECT n.g, n.c, %(start)s,
        n.attempts, n.firsts, n.retries, n.fallbacks, n.redeliveries, n.rerouted, n.succeeded,
        n.retryable, n.permanent, n.partial, n.client_cancelled, n.client_deadline,
        n.local_fault, n.failed, n.served, n.refused_breaker, n.refused_override,
        n.refused_budget, n.refused_rate, n.refused_concurrency, n.refused_key,
        n.refused_deadline, n.refused_policy, n.refused_cost, n.would_refuse, n.input_tokens,
        n.cached_tokens, n.cache_write_tokens, n.output_tokens, n.reasoning_tokens,
        n.wasted_tokens, n.wasted_final_tokens, n.unpriced, n.wasted_unpriced,
        n.wasted_final_unpriced, n.cost_estimated, n.tasks_succeeded, n.tasks_failed,
        n.requests, n.requests_succeeded, n.cost_gbp, n.wasted_gbp, n.wasted_final_gbp,
        n.estimated_gbp,
        COALESCE(bins_of_gateway.latency, '{}'), COALESCE(bins_of_gateway.first_byte, '{}'),
        COALESCE(bins_of_gateway.request_latency, '{}'), COALESCE(bins_of_gateway.waited, '{}')
    FROM (
        SELECT g, c,
            COALESCE(sum(attempts), 0) AS attempts, COALESCE(sum(firsts), 0) AS firsts,
            COALESCE(sum(retries), 0) AS retries, COALESCE(sum(fallbacks), 0) AS fallbacks,
            COALESCE(sum(redeliveries), 0) AS redeliveries,
            COALESCE(sum(rerouted), 0) AS rerouted, COALESCE(sum(succeeded), 0) AS succeeded,
            COALESCE(sum(retryable), 0) AS retryable, COALESCE(sum(permanent), 0) AS permanent,
            COALESCE(sum(partial), 0) AS partial,
            COALESCE(sum(client_cancelled), 0) AS client_cancelled,
            COALESCE(sum(client_deadline), 0) AS client_deadline,
            COALESCE(sum(local_fault), 0) AS local_fault, COALESCE(sum(failed), 0) AS failed,
            COALESCE(sum(served), 0) AS served,
            COALESCE(sum(refused_breaker), 0) AS refused_breaker,
            COALESCE(sum(refused_override), 0) AS refused_override,
            COALESCE(sum(refused_budget), 0) AS refused_budget,
            COALESCE(sum(refused_rate), 0) AS refused_rate,
            COALESCE(sum(refused_concurrency), 0) AS refused_concurrency,
            COALESCE(sum(refused_key), 0) AS refused_key,
            COALESCE(sum(refused_deadline), 0) AS refused_deadline,
            COALESCE(sum(refused_policy), 0) AS refused_policy,
            COALESCE(sum(refused_cost), 0) AS refused_cost,
            COALESCE(sum(would_refuse), 0) AS would_refuse,
            COALESCE(sum(input_tokens), 0) AS input_tokens,
            COALESCE(sum(cached_tokens), 0) AS cached_tokens,
            COALESCE(sum(cache_write_tokens), 0) AS cache_write_tokens,
            COALESCE(sum(output_tokens), 0) AS output_tokens,
            COALESCE(sum(reasoning_tokens), 0) AS reasoning_tokens,
            COALESCE(sum(wasted_tokens), 0) AS wasted_tokens,
            COALESCE(sum(wasted_final_tokens), 0) AS wasted_final_tokens,
            COALESCE(sum(unpriced), 0) AS unpriced,
            COALESCE(sum(wasted_unpriced), 0) AS wasted_unpriced,
            COALESCE(sum(wasted_final_unpriced), 0) AS wasted_final_unpriced,
            COALESCE(sum(cost_estimated), 0) AS cost_estimated,
            COALESCE(sum(tasks_succeeded), 0) AS tasks_succeeded,
            COALESCE(sum(tasks_failed), 0) AS tasks_failed,
            COALESCE(sum(requests), 0) AS requests,
            COALESCE(sum(requests_succeeded), 0) AS requests_succeeded,
            COALESCE(sum(cost_gbp), 0) AS cost_gbp, COALESCE(sum(wasted_gbp), 0) AS wasted_gbp,
            COALESCE(sum(wasted_final_gbp), 0) AS wasted_final_gbp,
            COALESCE(sum(estimated_gbp), 0) AS estimated_gbp
        FROM base GROUP BY g, c
    ) AS n
    LEFT JOIN bins_of_gateway USING (g, c)
), largest AS (
    SELECT t FROM (
        SELECT t, sum(COALESCE(attempts, 0)) AS attempts FROM base GROUP BY t
    ) AS sizes ORDER BY attempts DESC, t COLLATE "C" LIMIT %(tenants)s
), named AS (
    SELECT base.*, CASE WHEN largest.t IS NULL THEN '(other)' ELSE base.t END AS tenant
    FROM base LEFT JOIN largest ON largest.t = base.t
), bins AS (
    SELECT c, tenant, r,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'latency') AS latency,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'first_byte') AS first_byte,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'request_latency') AS request_latency,
        array_agg(bin ORDER BY bin) FILTER (WHERE what = 'waited') AS waited
    FROM (
        SELECT what, c, CASE WHEN largest.t IS NULL THEN '(other)' ELSE timed.t END AS tenant, r,
            (bucket << 32) + sum(n)::bigint AS bin
        FROM timed LEFT JOIN largest ON largest.t = timed.t
        GROUP BY 1, 2, 3, 4, bucket
    ) AS summed
    GROUP BY c, tenant, r
)
INSERT INTO rollup_hour_tenant (
    circuit_id, tenant, route, hour,
    attempts, firsts, retries, fallbacks, redeliveries, rerouted, succeeded, retryable,
    permanent, partial, client_cancelled, client_deadline, local_fault, failed, served,
    refused_breaker, refused_override, refused_budget, refused_rate, refused_concurrency,
    refused_key, refused_deadline, refused_policy, refused_cost, would_refuse, input_tokens,
    cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, wasted_tokens,
    wasted_final_tokens, unpriced, wasted_unpriced, wasted_final_unpriced, cost_estimated,
    tasks_succeeded, tasks_failed, requests, requests_succeeded, cost_gbp, wasted_gbp,
    wasted_final_gbp, estimated_gbp, latency, first_byte, request_latency, waited)
SELECT n.c, n.tenant, n.r, %(start)s,
    n.attempts, n.firsts, n.retries, n.fallbacks, n.redeliveries, n.rerouted, n.succeeded,
    n.retryable, n.permanent, n.partial, n.client_cancelled, n.client_deadline, n.local_fault,
    n.failed, n.served, n.refused_breaker, n.refused_override, n.refused_budget,
    n.refused_rate, n.refused_concurrency, n.refused_key, n.refused_deadline, n.refused_policy,
    n.refused_cost, n.would_refuse, n.input_tokens, n.cached_tokens, n.cache_write_tokens,
    n.output_tokens, n.reasoning_tokens, n.wasted_tokens, n.wasted_final_tokens, n.unpriced,
    n.wasted_unpriced, n.wasted_final_unpriced, n.cost_estimated, n.tasks_succeeded,
    n.tasks_failed, n.requests, n.requests_succeeded, n.cost_gbp, n.wasted_gbp,
    n.wasted_final_gbp, n.estimated_gbp,
    COALESCE(bins.latency, '{}'), COALESCE(bins.first_byte, '{}'),
    COALESCE(bins.request_latency, '{}'), COALESCE(bins.waited, '{}')
FROM (
    SELECT c, tenant, r,
        COALESCE(sum(attempts), 0) AS attempts, COALESCE(sum(firsts), 0) AS firsts,
        COALESCE(sum(retries), 0) AS retries, COALESCE(sum(fallbacks), 0) AS fallbacks,
        COALESCE(sum(redeliveries), 0) AS redeliveries, COALESCE(sum(rerouted), 0) AS rerouted,
        COALESCE(sum(succeeded), 0) AS succeeded, COALESCE(sum(retryable), 0) AS retryable,
        COALESCE(sum(permanent), 0) AS permanent, COALESCE(sum(partial), 0) AS partial,
        COALESCE(sum(client_cancelled), 0) AS client_cancelled,
        COALESCE(sum(client_deadline), 0) AS client_deadline,
        COALESCE(sum(local_fault), 0) AS local_fault, COALESCE(sum(failed), 0) AS failed,
        COALESCE(sum(served), 0) AS served,
        COALESCE(sum(refused_breaker), 0) AS refused_breaker,
        COALESCE(sum(refused_override), 0) AS refused_override,
        COALESCE(sum(refused_budget), 0) AS refused_budget,
        COALESCE(sum(refused_rate), 0) AS refused_rate,
        COALESCE(sum(refused_concurrency), 0) AS refused_concurrency,
        COALESCE(sum(refused_key), 0) AS refused_key,
        COALESCE(sum(refused_deadline), 0) AS refused_deadline,
        COALESCE(sum(refused_policy), 0) AS refused_policy,
        COALESCE(sum(refused_cost), 0) AS refused_cost,
        COALESCE(sum(would_refuse), 0) AS would_refuse,
        COALESCE(sum(input_tokens), 0) AS input_tokens,
        COALESCE(sum(cached_tokens), 0) AS cached_tokens,
        COALESCE(sum(cache_write_tokens), 0) AS cache_write_tokens,
        COALESCE(sum(output_tokens), 0) AS output_tokens,
        COALESCE(sum(reasoning_tokens), 0) AS reasoning_tokens,
        COALESCE(sum(wasted_tokens), 0) AS wasted_tokens,
        COALESCE(sum(wasted_final_tokens), 0) AS wasted_final_tokens,
        COALESCE(sum(unpriced), 0) AS unpriced,
        COALESCE(sum(wasted_unpriced), 0) AS wasted_unpriced,
        COALESCE(sum(wasted_final_unpriced), 0) AS wasted_final_unpriced,
        COALESCE(sum(cost_estimated), 0) AS cost_estimated,
        COALESCE(sum(tasks_succeeded), 0) AS tasks_succeeded,
        COALESCE(sum(tasks_failed), 0) AS tasks_failed, COALESCE(sum(requests), 0) AS requests,
        COALESCE(sum(requests_succeeded), 0) AS requests_succeeded,
        COALESCE(sum(cost_gbp), 0) AS cost_gbp, COALESCE(sum(wasted_gbp), 0) AS wasted_gbp,
        COALESCE(sum(wasted_final_gbp), 0) AS wasted_final_gbp,
        COALESCE(sum(estimated_gbp), 0) AS estimated_gbp
    FROM named GROUP BY c, tenant, r
) AS n
LEFT JOIN bins USING (c, tenant, r)
