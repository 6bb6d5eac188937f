-- One range of time (design 4.7): attempts sent in it, tasks closed in it, refusals made in it, each
-- by one split, by local day and in all. One statement, so that every figure is of one snapshot.
-- Hours that are derived, and not marked to be derived anew, are read as they are kept by one key
-- at a time (of each the 200 largest tenants are told apart; the rest are (other)); all the others
-- from the raw events, in spans; so too the hours that the range begins or ends within, in a zone
-- whose midnights are not whole UTC hours. Both judge alike, and a test holds the one against the
-- other. A derived hour that another midnight lies within is parted between its days by quarters.
-- A task without the header closes with its request's outcome; one with it by its caller's word, or
-- some idle time after its last request ended. Days are given as the instants at which they begin.
-- A request's attempts begin at most a day before it ends, a task's at most eight days before.
-- Of each event table the whole range is named beside the span: it spares the planner other days.
-- OFFSET 0 has a span's rows, or a row's task, sought by its index: how long a span is, the planner
-- cannot know, and it would read the week, or every task there is.
WITH derived AS MATERIALIZED (
    SELECT coalesce((SELECT upto FROM rollup_watermark WHERE grain = 'hour'), '-infinity') AS upto
),
dirty AS MATERIALIZED (
    SELECT at FROM (
        SELECT at FROM rollup_dirty
        WHERE grain = 'hour' AND at >= %(start)s AND at < %(end)s
        UNION
        SELECT date_trunc('hour', midnight, 'UTC')
        FROM unnest(%(midnights)s::timestamptz[] || %(end)s::timestamptz) AS midnight
        WHERE midnight <> date_trunc('hour', midnight, 'UTC') AND (
            midnight IN (%(start)s, %(end)s)
            OR midnight <> date_bin('15 minutes', midnight, 'epoch')
            -- An hour of before there were quarters, or one that holds nothing.
            OR NOT EXISTS (
                SELECT FROM rollup_quarter q
                WHERE q.at >= date_trunc('hour', midnight, 'UTC')
                  AND q.at < date_trunc('hour', midnight, 'UTC') + interval '1 hour'))
    ) AS marked
    WHERE at < (SELECT upto FROM derived)
      -- Of an hour whose raw events are dropped, what was derived is all there is; if a midnight lies
      -- within, it counts whole where it begins.
      AND at >= coalesce((SELECT max(upto) FROM raw_dropped), '-infinity')
),
span AS MATERIALIZED (
    SELECT greatest(min(at), %(start)s) AS since,
        least(max(at) + interval '1 hour', %(end)s) AS until
    FROM (SELECT at, at - row_number() OVER (ORDER BY at) * interval '1 hour' AS run FROM dirty) AS d
    GROUP BY run
    UNION ALL
    SELECT greatest(upto, %(start)s), %(end)s FROM derived WHERE upto < %(end)s
),
hours AS MATERIALIZED (
    SELECT h.*, width_bucket(h.hour, %(midnights)s::timestamptz[]) AS day
    FROM rollup_hour_split h
    WHERE h.split = %(by)s AND h.hour >= %(start)s AND h.hour < %(end)s
      AND h.hour < (SELECT upto FROM derived) AND h.hour NOT IN (SELECT at FROM dirty)
),
-- An hour stands in the day in which it begins. What comes after a midnight within it is taken
-- from that day and added to the next: nothing in all, nor of any key.
moved AS MATERIALIZED (
    SELECT width_bucket(midnight, %(midnights)s::timestamptz[]) - step.back AS day, step.sign, q.*
    FROM unnest(%(midnights)s::timestamptz[]) AS midnight
    JOIN rollup_quarter q
        ON q.at >= midnight AND q.at < date_trunc('hour', midnight, 'UTC') + interval '1 hour'
    CROSS JOIN (VALUES (0, 1), (1, -1)) AS step(back, sign)
    WHERE midnight > %(start)s AND midnight <> date_trunc('hour', midnight, 'UTC')
      AND midnight = date_bin('15 minutes', midnight, 'epoch')
      AND date_trunc('hour', midnight, 'UTC') < (SELECT upto FROM derived)
      AND date_trunc('hour', midnight, 'UTC') NOT IN (SELECT at FROM dirty)
),
failed_request AS (
    SELECT DISTINCT o.gateway_id, o.request
    FROM span s CROSS JOIN LATERAL (
        SELECT gateway_id, request FROM outcome
        WHERE occurred_at >= s.since AND occurred_at < s.until + interval '1 day'
          AND occurred_at >= %(start)s
          AND occurred_at < %(end)s::timestamptz + interval '1 day'
          AND task IS NULL AND NOT explicit AND NOT success AND request IS NOT NULL
        OFFSET 0) AS o
),
sent AS (
    SELECT
        CASE %(by)s WHEN 'circuit' THEN a.circuit_id::text WHEN 'route' THEN a.route
            WHEN 'tenant' THEN a.tenant ELSE a.gateway_id::text END AS key,
        width_bucket(a.occurred_at, %(midnights)s::timestamptz[]) AS day,
        a.role, a.verdict, a.counts, a.cost_gbp, a.cost_status, a.fx_id,
        NOT a.served AS wasted,
        NOT a.served OR r.request IS NOT NULL OR coalesce(
            NOT coalesce(k.explicit_success, k.implicit_success)
            AND coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval) <= %(now)s,
            false) AS wasted_finally
    FROM span s CROSS JOIN LATERAL (
        SELECT * FROM attempt
        WHERE occurred_at >= s.since AND occurred_at < s.until
          AND occurred_at >= %(start)s AND occurred_at < %(end)s
        OFFSET 0) AS a
    LEFT JOIN failed_request r
        ON r.gateway_id = a.gateway_id AND r.request = a.request AND a.task IS NULL
    LEFT JOIN LATERAL (
        SELECT * FROM task
        WHERE a.task IS NOT NULL
          AND gateway_id = a.gateway_id AND tenant = a.tenant AND task = a.task
        OFFSET 0) AS k ON true
),
sums AS MATERIALIZED (
    SELECT coalesce(key, '') AS key, day, fx_id,
        count(*) AS attempts,
        count(*) FILTER (WHERE role = 'first') AS firsts,
        count(*) FILTER (WHERE role = 'retry') AS retries,
        count(*) FILTER (WHERE role = 'fallback') AS fallbacks,
        count(*) FILTER (WHERE role = 'redelivery') AS redeliveries,
        count(*) FILTER (WHERE verdict = 'success') AS succeeded,
        count(*) FILTER (WHERE counts) AS failed,
        coalesce(sum(cost_gbp), 0) AS cost_gbp,
        count(*) FILTER (WHERE cost_gbp IS NULL) AS unpriced,
        count(*) FILTER (WHERE cost_status = 'estimated') AS cost_estimated,
        coalesce(sum(cost_gbp) FILTER (WHERE wasted), 0) AS wasted_gbp,
        count(*) FILTER (WHERE wasted AND cost_gbp IS NULL) AS wasted_unpriced,
        coalesce(sum(cost_gbp) FILTER (WHERE wasted_finally), 0) AS wasted_final_gbp,
        count(*) FILTER (WHERE wasted_finally AND cost_gbp IS NULL) AS wasted_final_unpriced
    FROM sent
    GROUP BY coalesce(key, ''), day, fx_id
),
-- Hours judge a task by what is known of it, a report only once it has closed: served attempts in
-- such hours of failed tasks that may still go on are not wasted yet.
unclosed AS (
    SELECT
        CASE %(by)s WHEN 'circuit' THEN a.circuit_id::text WHEN 'route' THEN a.route
            WHEN 'tenant' THEN a.tenant ELSE a.gateway_id::text END AS key,
        width_bucket(a.occurred_at, %(midnights)s::timestamptz[]) AS day,
        a.cost_gbp
    FROM task k CROSS JOIN LATERAL (
        SELECT * FROM attempt
        WHERE gateway_id = k.gateway_id AND tenant = k.tenant AND task = k.task AND served
          AND occurred_at >= %(start)s AND occurred_at < %(end)s
          AND occurred_at < (SELECT upto FROM derived)
          AND date_trunc('hour', occurred_at, 'UTC') NOT IN (SELECT at FROM dirty)
        OFFSET 0) AS a
    WHERE coalesce(k.explicit_at, k.implicit_at) > %(now)s::timestamptz - %(idle)s::interval
      AND coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval) > %(now)s
      AND NOT coalesce(k.explicit_success, k.implicit_success)
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
            sum(attempts) AS attempts, sum(firsts) AS firsts, sum(retries) AS retries,
            sum(fallbacks) AS fallbacks, sum(redeliveries) AS redeliveries,
            sum(succeeded) AS succeeded, sum(failed) AS failed,
            sum(cost_gbp) AS cost_gbp, sum(unpriced) AS unpriced, sum(cost_estimated) AS estimated,
            sum(wasted_gbp) AS wasted_gbp,
            sum(wasted_unpriced) AS wasted_unpriced,
            sum(wasted_final_gbp) AS wasted_finally_gbp,
            sum(wasted_final_unpriced) AS wasted_finally_unpriced
        FROM (
            SELECT key, day, attempts, firsts, retries, fallbacks, redeliveries, succeeded, failed,
                cost_gbp, unpriced, cost_estimated, wasted_gbp, wasted_unpriced,
                wasted_final_gbp, wasted_final_unpriced
            FROM hours
            UNION ALL
            SELECT key, day, attempts, firsts, retries, fallbacks, redeliveries, succeeded, failed,
                cost_gbp, unpriced, cost_estimated, wasted_gbp, wasted_unpriced,
                wasted_final_gbp, wasted_final_unpriced
            FROM sums
            UNION ALL
            SELECT key, day, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                -coalesce(cost_gbp, 0), CASE WHEN cost_gbp IS NULL THEN -1 ELSE 0 END
            FROM unclosed
            UNION ALL
            SELECT '', day, sign * attempts, sign * firsts, sign * retries, sign * fallbacks,
                sign * redeliveries, sign * succeeded, sign * failed, sign * cost_gbp,
                sign * unpriced, sign * cost_estimated, sign * wasted_gbp, sign * wasted_unpriced,
                sign * wasted_final_gbp, sign * wasted_final_unpriced
            FROM moved
        ) AS parts
        GROUP BY GROUPING SETS ((), (key), (day))
        HAVING sum(attempts) > 0
    ) AS summed
),
closed AS (
    SELECT o.gateway_id, o.tenant, o.route, o.success, o.occurred_at AS closed_at, o.request,
        NULL AS task, s.since - interval '1 day' AS oldest, s.since, s.until
    FROM span s CROSS JOIN LATERAL (
        SELECT * FROM outcome
        WHERE task IS NULL AND NOT explicit
          AND occurred_at >= s.since AND occurred_at < s.until
          AND occurred_at >= %(start)s AND occurred_at < %(end)s
        OFFSET 0) AS o
    UNION ALL
    SELECT k.gateway_id, k.tenant, k.route, coalesce(k.explicit_success, k.implicit_success),
        coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval), NULL, k.task,
        -- The last attempt is not older than a day before the first request; it spares most days.
        greatest(s.since - interval '8 days', k.first_started_at - interval '1 day'), s.since, s.until
    FROM span s
    JOIN task k
        -- The first two lines are the index's; the others say exactly what is meant.
        ON coalesce(k.explicit_at, k.implicit_at) >= s.since - %(idle)s::interval
        AND coalesce(k.explicit_at, k.implicit_at) < s.until
        AND coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval) >= s.since
        AND coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval) < s.until
        AND coalesce(k.explicit_at, k.implicit_at + %(idle)s::interval) <= %(now)s
),
last_of_request AS (
    -- A span's own attempts are later than any before it.
    SELECT DISTINCT ON (a.gateway_id, a.request) a.gateway_id, a.request, a.circuit_id
    FROM span s CROSS JOIN LATERAL (
        SELECT gateway_id, request, circuit_id, occurred_at, ordinal, id FROM attempt
        WHERE %(by)s = 'circuit' AND task IS NULL
          AND occurred_at >= s.since AND occurred_at < s.until
          AND occurred_at >= %(start)s AND occurred_at < %(end)s
        OFFSET 0) AS a
    WHERE (a.gateway_id, a.request) IN (SELECT gateway_id, request FROM closed)
    ORDER BY a.gateway_id, a.request, a.occurred_at DESC, a.ordinal DESC, a.id DESC
),
ends AS (
    SELECT
        CASE %(by)s
            WHEN 'circuit' THEN coalesce(r.circuit_id, b.circuit_id, t.circuit_id)::text
            WHEN 'route' THEN c.route
            WHEN 'tenant' THEN c.tenant
            ELSE c.gateway_id::text
        END AS key,
        width_bucket(c.closed_at, %(midnights)s::timestamptz[]) AS day,
        c.success
    FROM closed c
    LEFT JOIN last_of_request r ON r.gateway_id = c.gateway_id AND r.request = c.request
    LEFT JOIN LATERAL (
        -- "+ 0" keeps the gateway out of the choice of an index, as in derive_hour.sql.
        SELECT a.circuit_id FROM attempt a
        WHERE %(by)s = 'circuit' AND r.request IS NULL
          AND a.request = c.request AND a.gateway_id + 0 = c.gateway_id AND a.task IS NULL
          AND a.occurred_at >= c.oldest AND a.occurred_at < c.since
          AND a.occurred_at >= %(start)s::timestamptz - interval '1 day'
          AND a.occurred_at < %(end)s
        ORDER BY a.occurred_at DESC, a.ordinal DESC, a.id DESC LIMIT 1
    ) AS b ON true
    LEFT JOIN LATERAL (
        SELECT a.circuit_id FROM attempt a
        WHERE %(by)s = 'circuit'
          AND a.gateway_id = c.gateway_id AND a.tenant = c.tenant AND a.task = c.task
          AND a.occurred_at >= c.oldest AND a.occurred_at < c.until
          AND a.occurred_at >= %(start)s::timestamptz - interval '8 days'
          AND a.occurred_at < %(end)s
        ORDER BY a.occurred_at DESC, a.ordinal DESC, a.id DESC LIMIT 1
    ) AS t ON true
),
tasks AS (
    SELECT json_agg(json_build_array(key, day, succeeded, failed)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN key END AS key,
            CASE WHEN grouping(day) = 0 THEN day END AS day,
            sum(succeeded) AS succeeded,
            sum(failed) AS failed
        FROM (
            SELECT key, day, tasks_succeeded AS succeeded, tasks_failed AS failed FROM hours
            UNION ALL
            SELECT '', day, sign * tasks_succeeded, sign * tasks_failed FROM moved
            UNION ALL
            SELECT coalesce(key, ''), day,
                count(*) FILTER (WHERE success), count(*) FILTER (WHERE NOT success)
            FROM ends GROUP BY coalesce(key, ''), day
        ) AS parts
        GROUP BY GROUPING SETS ((), (key), (day))
        HAVING sum(succeeded) > 0 OR sum(failed) > 0
    ) AS summed
),
refused AS (
    SELECT h.key, g.gate, g.refused, g.would_refuse
    FROM hours h
    CROSS JOIN LATERAL (VALUES
        ('breaker', refused_breaker, h.would_refuse), ('override', refused_override, 0),
        ('budget', refused_budget, 0), ('rate', refused_rate, 0),
        ('concurrency', refused_concurrency, 0), ('key', refused_key, 0),
        ('deadline', refused_deadline, 0), ('policy', refused_policy, 0),
        ('cost', refused_cost, 0)) AS g(gate, refused, would_refuse)
    WHERE g.refused > 0 OR g.would_refuse > 0
    UNION ALL
    SELECT
        CASE %(by)s WHEN 'circuit' THEN r.circuit_id::text WHEN 'route' THEN r.route
            WHEN 'tenant' THEN r.tenant ELSE r.gateway_id::text END,
        r.gate, CASE WHEN r.would_have THEN 0 ELSE 1 END, CASE WHEN r.would_have THEN 1 ELSE 0 END
    FROM span s CROSS JOIN LATERAL (
        SELECT * FROM refusal
        WHERE occurred_at >= s.since AND occurred_at < s.until
          AND occurred_at >= %(start)s AND occurred_at < %(end)s
        OFFSET 0) AS r
),
refusals AS (
    SELECT json_agg(json_build_array(key, gate, refused, would_refuse)) AS rows
    FROM (
        SELECT
            CASE WHEN grouping(key) = 0 THEN coalesce(key, '') END AS key,
            gate, sum(refused) AS refused, sum(would_refuse) AS would_refuse
        FROM refused
        GROUP BY GROUPING SETS ((gate), (key, gate))
    ) AS summed
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
    ) AS summed
),
simulated AS (
    SELECT json_agg(name ORDER BY name) AS names
    FROM gateway g
    WHERE g.labels ->> 'simulated' = 'true' AND (
        EXISTS (SELECT FROM rollup_hour_split h
                WHERE h.split = 'gateway' AND h.key = g.id::text
                  AND h.hour >= %(start)s AND h.hour < %(end)s
                  AND h.hour < (SELECT upto FROM derived) AND h.hour NOT IN (SELECT at FROM dirty))
        OR EXISTS (SELECT FROM span s CROSS JOIN LATERAL (
            SELECT FROM attempt WHERE gateway_id = g.id
              AND occurred_at >= s.since AND occurred_at < s.until
              AND occurred_at >= %(start)s AND occurred_at < %(end)s LIMIT 1) AS a)
        OR EXISTS (SELECT FROM span s CROSS JOIN LATERAL (
            SELECT FROM outcome WHERE gateway_id = g.id
              AND occurred_at >= s.since AND occurred_at < s.until
              AND occurred_at >= %(start)s AND occurred_at < %(end)s LIMIT 1) AS o)
        OR EXISTS (SELECT FROM span s CROSS JOIN LATERAL (
            SELECT FROM refusal WHERE gateway_id = g.id
              AND occurred_at >= s.since AND occurred_at < s.until
              AND occurred_at >= %(start)s AND occurred_at < %(end)s LIMIT 1) AS r))
),
rates AS (
    SELECT json_agg(json_build_array(currency, day, gbp, source) ORDER BY currency, day) AS used
    FROM fx_rate
    WHERE id IN (SELECT fx_id FROM rollup_hour_rate
                 WHERE hour >= %(start)s AND hour < %(end)s
                   AND hour < (SELECT upto FROM derived) AND hour NOT IN (SELECT at FROM dirty)
                 UNION ALL SELECT fx_id FROM sums)
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
