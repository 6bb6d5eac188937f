-- One range of time (design 4.7): attempts sent in it, tasks closed in it, refusals made in it, each
-- by one split, by local day and in all. One statement, so that every figure is of one snapshot.
-- A task without the header closes with its request's outcome; one with it by its caller's word, or
-- some idle time after its last request ended. Days are given as the instants at which they begin.
-- A request's attempts begin at most a day before it ends, a task's at most eight days before.
WITH failed_request AS (
    SELECT DISTINCT gateway_id, request
    FROM outcome
    WHERE task IS NULL AND NOT explicit AND NOT success AND request IS NOT NULL
      AND occurred_at >= %(start)s
      AND occurred_at < %(end)s::timestamptz + interval '1 day'
),
failed_task AS (
    SELECT gateway_id, tenant, task
    FROM task
    WHERE NOT coalesce(explicit_success, implicit_success)
      AND coalesce(explicit_at, implicit_at + %(idle)s::interval) <= %(now)s
),
sent AS (
    SELECT
        CASE %(by)s
            WHEN 'circuit' THEN a.circuit_id::text
            WHEN 'route' THEN a.route
            WHEN 'tenant' THEN a.tenant
            ELSE a.gateway_id::text
        END AS key,
        width_bucket(a.occurred_at, %(midnights)s::timestamptz[]) AS day,
        a.role, a.verdict, a.counts, a.cost_gbp, a.cost_status,
        NOT a.served AS wasted,
        NOT a.served OR r.request IS NOT NULL OR t.task IS NOT NULL AS wasted_finally
    FROM attempt a
    LEFT JOIN failed_request r
        ON r.gateway_id = a.gateway_id AND r.request = a.request AND a.task IS NULL
    LEFT JOIN failed_task t
        ON t.gateway_id = a.gateway_id AND t.tenant = a.tenant AND t.task = a.task
    WHERE a.occurred_at >= %(start)s AND a.occurred_at < %(end)s
),
attempts AS (
    SELECT json_agg(json_build_array(
        key, day,
        attempts, firsts, retries, fallbacks, redeliveries, succeeded, failed,
        cost_gbp, unpriced, estimated,
        wasted_gbp, wasted_unpriced, wasted_finally_gbp, wasted_finally_unpriced
    )) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN coalesce(key, '') END AS key,
            CASE WHEN grouping(day) = 0 THEN day END AS day,
            count(*) AS attempts,
            count(*) FILTER (WHERE role = 'first') AS firsts,
            count(*) FILTER (WHERE role = 'retry') AS retries,
            count(*) FILTER (WHERE role = 'fallback') AS fallbacks,
            count(*) FILTER (WHERE role = 'redelivery') AS redeliveries,
            count(*) FILTER (WHERE verdict = 'success') AS succeeded,
            count(*) FILTER (WHERE counts) AS failed,
            sum(cost_gbp) AS cost_gbp,
            count(*) FILTER (WHERE cost_gbp IS NULL) AS unpriced,
            count(*) FILTER (WHERE cost_status = 'estimated') AS estimated,
            sum(cost_gbp) FILTER (WHERE wasted) AS wasted_gbp,
            count(*) FILTER (WHERE wasted AND cost_gbp IS NULL) AS wasted_unpriced,
            sum(cost_gbp) FILTER (WHERE wasted_finally) AS wasted_finally_gbp,
            count(*) FILTER (WHERE wasted_finally AND cost_gbp IS NULL) AS wasted_finally_unpriced
        FROM sent
        GROUP BY GROUPING SETS ((), (key), (day))
    ) AS sums
),
closed AS (
    SELECT gateway_id, tenant, route, success, occurred_at AS closed_at, request, NULL AS task
    FROM outcome
    WHERE task IS NULL AND NOT explicit
      AND occurred_at >= %(start)s AND occurred_at < %(end)s
    UNION ALL
    SELECT gateway_id, tenant, route, coalesce(explicit_success, implicit_success),
        coalesce(explicit_at, implicit_at + %(idle)s::interval), NULL, task
    FROM task
    -- The first two lines are the index's; the others say exactly what is meant.
    WHERE coalesce(explicit_at, implicit_at) >= %(start)s::timestamptz - %(idle)s::interval
      AND coalesce(explicit_at, implicit_at) < %(end)s
      AND coalesce(explicit_at, implicit_at + %(idle)s::interval) >= %(start)s
      AND coalesce(explicit_at, implicit_at + %(idle)s::interval) < %(end)s
      AND coalesce(explicit_at, implicit_at + %(idle)s::interval) <= %(now)s
),
last_of_request AS (
    SELECT DISTINCT ON (gateway_id, request) gateway_id, request, circuit_id
    FROM attempt
    WHERE %(by)s = 'circuit' AND task IS NULL
      AND occurred_at >= %(start)s::timestamptz - interval '1 day' AND occurred_at < %(end)s
    ORDER BY gateway_id, request, occurred_at DESC, ordinal DESC, id DESC
),
last_of_task AS (
    SELECT DISTINCT ON (gateway_id, tenant, task) gateway_id, tenant, task, circuit_id
    FROM attempt
    WHERE %(by)s = 'circuit' AND task IS NOT NULL
      AND occurred_at >= %(start)s::timestamptz - interval '8 days' AND occurred_at < %(end)s
    ORDER BY gateway_id, tenant, task, occurred_at DESC, ordinal DESC, id DESC
),
tasks AS (
    SELECT json_agg(json_build_array(key, day, succeeded, failed)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN coalesce(key, '') END AS key,
            CASE WHEN grouping(day) = 0 THEN day END AS day,
            count(*) FILTER (WHERE success) AS succeeded,
            count(*) FILTER (WHERE NOT success) AS failed
        FROM (
            SELECT
                CASE %(by)s
                    WHEN 'circuit' THEN coalesce(r.circuit_id, t.circuit_id)::text
                    WHEN 'route' THEN c.route
                    WHEN 'tenant' THEN c.tenant
                    ELSE c.gateway_id::text
                END AS key,
                width_bucket(c.closed_at, %(midnights)s::timestamptz[]) AS day,
                c.success
            FROM closed c
            LEFT JOIN last_of_request r
                ON r.gateway_id = c.gateway_id AND r.request = c.request
            LEFT JOIN last_of_task t
                ON t.gateway_id = c.gateway_id AND t.tenant = c.tenant AND t.task = c.task
        ) AS ends
        GROUP BY GROUPING SETS ((), (key), (day))
    ) AS sums
),
refusals AS (
    SELECT json_agg(json_build_array(key, gate, refused, would_refuse)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN coalesce(key, '') END AS key,
            gate,
            count(*) FILTER (WHERE NOT would_have) AS refused,
            count(*) FILTER (WHERE would_have) AS would_refuse
        FROM (
            SELECT
                CASE %(by)s
                    WHEN 'circuit' THEN circuit_id::text
                    WHEN 'route' THEN route
                    WHEN 'tenant' THEN tenant
                    ELSE gateway_id::text
                END AS key,
                gate,
                would_have
            FROM refusal
            WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
        ) AS made
        GROUP BY GROUPING SETS ((gate), (key, gate))
    ) AS sums
),
openings AS (
    SELECT json_agg(json_build_array(key, openings)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN key END AS key,
            count(*) AS openings
        FROM (
            SELECT CASE %(by)s
                WHEN 'circuit' THEN circuit_id::text
                WHEN 'gateway' THEN gateway_id::text
            END AS key
            FROM transition
            WHERE occurred_at >= %(start)s AND occurred_at < %(end)s
              AND to_state = 'Open' AND from_state = 'Closed'
        ) AS opened
        GROUP BY GROUPING SETS ((), (key))
        HAVING grouping(key) = 1 OR key IS NOT NULL
    ) AS sums
),
simulated AS (
    SELECT json_agg(name ORDER BY name) AS names
    FROM gateway g
    WHERE g.labels ->> 'simulated' = 'true'
      AND (EXISTS (SELECT FROM attempt a WHERE a.gateway_id = g.id
                   AND a.occurred_at >= %(start)s AND a.occurred_at < %(end)s)
        OR EXISTS (SELECT FROM outcome o WHERE o.gateway_id = g.id
                   AND o.occurred_at >= %(start)s AND o.occurred_at < %(end)s))
),
rates AS (
    SELECT json_agg(json_build_array(currency, day, gbp, source) ORDER BY currency, day) AS used
    FROM fx_rate
    WHERE id IN (SELECT fx_id FROM attempt
                 WHERE occurred_at >= %(start)s AND occurred_at < %(end)s)
)
SELECT json_build_object(
    'attempts', coalesce((SELECT rows FROM attempts), '[]'),
    'tasks', coalesce((SELECT rows FROM tasks), '[]'),
    'refusals', coalesce((SELECT rows FROM refusals), '[]'),
    'openings', coalesce((SELECT rows FROM openings), '[]'),
    'simulated', coalesce((SELECT names FROM simulated), '[]'),
    'rates', coalesce((SELECT used FROM rates), '[]'),
    'circuits', CASE WHEN %(by)s = 'circuit' THEN (
        SELECT coalesce(json_object_agg(id, json_build_array(provider, model, region)), '{}')
        FROM circuit) ELSE '{}' END,
    'gateways', CASE WHEN %(by)s = 'gateway' THEN (
        SELECT coalesce(json_object_agg(id, name), '{}') FROM gateway) ELSE '{}' END
)::text
