-- The same document as weekly.sql, of whole hours that are all derived: "ready" is false when one
-- is not, or is marked to be derived anew, and then nothing else of it counts. Of each hour the 200
-- largest tenants are told apart; the rest are (other). Openings and simulated gateways are few and
-- come from where they are.
WITH ready AS (
    SELECT upto >= %(end)s AND NOT EXISTS (
        SELECT FROM rollup_dirty
        WHERE grain = 'hour' AND at >= %(start)s AND at < %(end)s) AS ready
    FROM rollup_watermark WHERE grain = 'hour'
),
hours AS MATERIALIZED (
    SELECT h.*, width_bucket(h.hour, %(midnights)s::timestamptz[]) AS day
    FROM rollup_hour_split h
    WHERE h.split = %(by)s AND h.hour >= %(start)s AND h.hour < %(end)s
      AND (SELECT ready FROM ready)
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
            CASE WHEN grouping(key) = 0 THEN key END AS key,
            CASE WHEN grouping(day) = 0 THEN day END AS day,
            sum(attempts) AS attempts,
            sum(firsts) AS firsts,
            sum(retries) AS retries,
            sum(fallbacks) AS fallbacks,
            sum(redeliveries) AS redeliveries,
            sum(succeeded) AS succeeded,
            sum(failed) AS failed,
            sum(cost_gbp) AS cost_gbp,
            sum(unpriced) AS unpriced,
            sum(cost_estimated) AS estimated,
            sum(wasted_gbp) AS wasted_gbp,
            sum(wasted_unpriced) AS wasted_unpriced,
            sum(wasted_final_gbp) AS wasted_finally_gbp,
            sum(wasted_final_unpriced) AS wasted_finally_unpriced
        FROM hours
        GROUP BY GROUPING SETS ((), (key), (day))
        HAVING sum(attempts) > 0
    ) AS sums
),
tasks AS (
    SELECT json_agg(json_build_array(key, day, succeeded, failed)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN key END AS key,
            CASE WHEN grouping(day) = 0 THEN day END AS day,
            sum(tasks_succeeded) AS succeeded,
            sum(tasks_failed) AS failed
        FROM hours
        GROUP BY GROUPING SETS ((), (key), (day))
        HAVING sum(tasks_succeeded) > 0 OR sum(tasks_failed) > 0
    ) AS sums
),
refusals AS (
    SELECT json_agg(json_build_array(key, gate, refused, would_refuse)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN key END AS key,
            gate,
            sum(refused) AS refused,
            sum(would) AS would_refuse
        FROM hours h
        CROSS JOIN LATERAL (VALUES
            ('breaker', refused_breaker, would_refuse), ('override', refused_override, 0),
            ('budget', refused_budget, 0), ('rate', refused_rate, 0),
            ('concurrency', refused_concurrency, 0), ('key', refused_key, 0),
            ('deadline', refused_deadline, 0), ('policy', refused_policy, 0),
            ('cost', refused_cost, 0)) AS g(gate, refused, would)
        WHERE refused > 0 OR would > 0
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
              AND (SELECT ready FROM ready)
        ) AS opened
        GROUP BY GROUPING SETS ((), (key))
        HAVING grouping(key) = 1 OR key IS NOT NULL
    ) AS sums
),
simulated AS (
    SELECT json_agg(name ORDER BY name) AS names
    FROM gateway g
    WHERE g.labels ->> 'simulated' = 'true'
      AND EXISTS (SELECT FROM rollup_hour_split h
                  WHERE h.split = 'gateway' AND h.key = g.id::text
                    AND h.hour >= %(start)s AND h.hour < %(end)s)
),
rates AS (
    SELECT json_agg(json_build_array(currency, day, gbp, source) ORDER BY currency, day) AS used
    FROM fx_rate
    WHERE id IN (SELECT fx_id FROM rollup_hour_rate
                 WHERE hour >= %(start)s AND hour < %(end)s)
)
SELECT json_build_object(
    'ready', coalesce((SELECT ready FROM ready), false),
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
