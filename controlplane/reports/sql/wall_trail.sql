-- The quarter of an hour up to now (at: NULL) or to a moment of the past: minutes, transitions, and
-- why the worst circuits fail.
-- The moment is asked for by itself wherever it is needed, so that the days of the event tables are
-- pruned before they are looked into; "first" and "last", a day around it, spare the planner all
-- the others: with thirty days it took longer to plan than to run.
-- Bounded in every part: 16 minutes, the newest 20,000 transitions and redeliveries, 500 failed
-- attempts a circuit.
WITH derived AS (
    SELECT coalesce((SELECT upto FROM rollup_watermark WHERE grain = 'minute'), '-infinity') AS upto
), span AS (
    SELECT at AS upto, date_trunc('minute', at) - interval '15 minutes' AS since
    FROM coalesce(%(at)s::timestamptz, statement_timestamp()) AS at
), settled AS (
    -- Minutes of the hour before this one are derived, and none of them is to be derived anew.
    SELECT least(
        (SELECT upto FROM derived),
        (SELECT min(at) FROM rollup_dirty
         WHERE grain = 'minute' AND at >= (SELECT upto FROM span) - interval '1 hour')
    ) AS upto
), minutes AS (
    SELECT r.circuit_id, r.minute,
           sum(r.attempts) AS attempts, sum(r.firsts) AS firsts, sum(r.retries) AS retries,
           sum(r.failed) AS failed, sum(r.refused_breaker) AS refused_breaker,
           sum(r.refused_override) AS refused_override, sum(r.refused_budget) AS refused_budget,
           sum(r.cost_gbp) AS cost_gbp, sum(r.wasted_gbp) AS wasted_gbp,
           sum(r.unpriced) AS unpriced, sum(r.would_refuse) AS would_refuse
    FROM (
        SELECT circuit_id, minute, attempts, firsts, retries, failed, refused_breaker,
               refused_override, refused_budget, cost_gbp, wasted_gbp, unpriced, would_refuse
        FROM rollup_minute
        WHERE minute >= (SELECT since FROM span) AND minute <= (SELECT upto FROM span)
          AND (%(at)s::timestamptz IS NULL OR minute >= (SELECT upto FROM derived))
        UNION ALL
        -- Of the past only: derived minutes are kept longer than the gateways' own.
        SELECT circuit_id, minute, attempts, firsts, retries, failed, refused_breaker,
               refused_override, refused_budget, cost_gbp, wasted_gbp, unpriced, would_refuse
        FROM rollup_circuit_minute
        WHERE minute >= (SELECT since FROM span) AND minute <= (SELECT upto FROM span)
          AND %(at)s::timestamptz IS NOT NULL AND minute < (SELECT upto FROM derived)
    ) AS r
    GROUP BY r.circuit_id, r.minute
), failing AS (
    SELECT m.circuit_id
    FROM minutes m
    WHERE m.minute > (SELECT upto FROM span) - interval '2 minutes' AND m.failed > 0
    GROUP BY m.circuit_id
    ORDER BY sum(m.failed) DESC
    LIMIT 20
)
SELECT json_build_object(
    'at', (SELECT upto FROM span),
    'since', (SELECT since FROM span),
    'minutes', (
        SELECT coalesce(json_agg(json_build_array(
            m.circuit_id, m.minute, m.attempts, m.firsts, m.retries, m.failed,
            m.refused_breaker, m.refused_override, m.refused_budget,
            m.cost_gbp::text, m.wasted_gbp::text, m.unpriced, m.would_refuse
        ) ORDER BY m.circuit_id, m.minute), '[]')
        FROM minutes m
    ),
    'transitions', (
        SELECT coalesce(json_agg(json_build_array(
            t.instance_id, t.circuit_id, t.occurred_at, t.from_state, t.to_state, t.mode
        ) ORDER BY t.occurred_at, t.number), '[]')
        FROM (
            SELECT t.*
            FROM transition t
            WHERE t.occurred_at >= (SELECT since FROM span)
              AND t.occurred_at <= (SELECT upto FROM span)
              AND t.occurred_at BETWEEN %(first)s AND %(last)s
            ORDER BY t.occurred_at DESC
            LIMIT 20000
        ) AS t
    ),
    'reasons', (
        SELECT coalesce(json_agg(json_build_array(w.circuit_id, w.reason) ORDER BY w.n DESC), '[]')
        FROM (
            SELECT f.circuit_id, a.reason, count(*) AS n
            FROM failing f
            CROSS JOIN LATERAL (
                SELECT a.reason
                FROM attempt a
                WHERE a.circuit_id = f.circuit_id
                  AND a.occurred_at > (SELECT upto FROM span) - interval '2 minutes'
                  AND a.occurred_at <= (SELECT upto FROM span)
                  AND a.occurred_at BETWEEN %(first)s AND %(last)s
                  AND a.counts
                ORDER BY a.occurred_at DESC
                LIMIT 500
            ) AS a
            GROUP BY f.circuit_id, a.reason
        ) AS w
    ),
    -- Of circuits with calls that some policy calls slow (without one, the gateways' 60 s): how many
    -- calls ended, and the upper bins of their histograms. Of the newest three derived minutes: they
    -- are two minutes old at least, so what was begun in them has ended. Nothing of the past, whose
    -- policies are not kept. Bins ascend, so the last one says whether there is anything to take.
    'tails', (
        WITH edge AS MATERIALIZED (
            SELECT switchgear_bucket(
                (least(60, min((p.spec ->> 'slow_call_seconds')::numeric)) * 1000)::int
            )::bigint << 32 AS bin
            FROM breaker_policy p
        )
        SELECT coalesce(json_agg(json_build_array(t.circuit_id, t.calls, ARRAY(
            SELECT bin FROM unnest(t.bins) AS bin WHERE bin >= (SELECT bin FROM edge)
        ))), '[]')
        FROM (
            SELECT r.circuit_id, sum(r.ended_count) AS calls,
                   switchgear_concat(r.latency) FILTER (
                       WHERE r.latency[cardinality(r.latency)] >= (SELECT bin FROM edge)
                   ) AS bins
            FROM rollup_circuit_minute r
            WHERE %(at)s::timestamptz IS NULL
              AND r.minute >= (SELECT upto FROM derived) - interval '3 minutes'
              AND r.minute < (SELECT upto FROM derived)
              AND r.minute >= (SELECT upto FROM span) - interval '8 minutes'
            GROUP BY r.circuit_id
        ) AS t
        WHERE t.bins IS NOT NULL
    ),
    'peak', (
        SELECT json_build_array(h.minute, h.wasted::text)
        FROM (
            -- Of an hour, a row a circuit and not one a gateway and circuit: a twentieth of them in
            -- a fleet of twenty gateways.
            SELECT r.minute, sum(r.wasted_gbp) AS wasted
            FROM (
                SELECT minute, wasted_gbp
                FROM rollup_minute
                WHERE minute >= (SELECT upto FROM span) - interval '1 hour'
                  AND minute >= (SELECT upto FROM settled)
                  AND minute <= (SELECT upto FROM span)
                UNION ALL
                SELECT minute, wasted_gbp
                FROM rollup_circuit_minute
                WHERE minute >= (SELECT upto FROM span) - interval '1 hour'
                  AND minute < (SELECT upto FROM settled)
                  AND minute <= (SELECT upto FROM span)
            ) AS r
            GROUP BY r.minute
        ) AS h
        WHERE h.wasted > 0
        ORDER BY h.wasted DESC, h.minute DESC
        LIMIT 1
    ),
    -- Redelivered requests a minute, by tenant: whose SDK retries beside the gateway (design 4.4).
    -- Of the last five minutes, or of as much of them as the newest 20,000 reach back.
    'redelivering', (
        WITH newest AS (
            SELECT a.tenant, a.occurred_at
            FROM attempt a
            WHERE a.role = 'redelivery'
              AND a.occurred_at > (SELECT upto - interval '5 minutes' FROM span)
              AND a.occurred_at <= (SELECT upto FROM span)
              AND a.occurred_at BETWEEN %(first)s AND %(last)s
            ORDER BY a.occurred_at DESC
            LIMIT 20000
        ), reach AS MATERIALIZED (
            SELECT CASE WHEN count(*) < 20000 THEN 5.0
                        ELSE greatest(extract(epoch FROM (SELECT upto FROM span) - min(occurred_at)),
                                      1) / 60 END AS minutes
            FROM newest
        )
        SELECT coalesce(json_agg(json_build_array(d.tenant, d.a_minute)
                                 ORDER BY d.a_minute DESC, d.tenant COLLATE "C"), '[]')
        FROM (
            SELECT n.tenant, count(*) / (SELECT minutes FROM reach) AS a_minute
            FROM newest n
            GROUP BY n.tenant
            ORDER BY a_minute DESC, n.tenant COLLATE "C"
            LIMIT 20
        ) AS d
    )
)::text
