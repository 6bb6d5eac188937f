-- A stretch of time as one document: minutes of the fleet, why attempts failed, every breaker's
-- changes, who was there to report them, the hands on it and the marks. Bounded: the caller asks for
-- at most a day; 20,000 changes; the newest state before the stretch is looked for one day back.
WITH derived AS (
    SELECT coalesce((SELECT upto FROM rollup_watermark WHERE grain = 'minute'), '-infinity') AS upto
), changed AS (
    SELECT t.instance_id, t.circuit_id, t.occurred_at, t.number, t.from_state, t.to_state,
           t.cause, t.mode
    FROM transition t
    WHERE t.occurred_at >= %(since)s AND t.occurred_at < %(until)s
    ORDER BY t.occurred_at
    LIMIT 20000
), before AS (
    SELECT DISTINCT ON (t.instance_id, t.circuit_id)
           t.instance_id, t.circuit_id, t.to_state, t.mode
    FROM transition t
    WHERE t.occurred_at >= %(since)s::timestamptz - interval '1 day' AND t.occurred_at < %(since)s
    ORDER BY t.instance_id, t.circuit_id, t.occurred_at DESC, t.number DESC
), sick AS (
    SELECT circuit_id FROM changed WHERE to_state = 'Open' OR from_state = 'Open'
    UNION
    SELECT b.circuit_id
    FROM before b
    JOIN instance i ON i.id = b.instance_id
    WHERE b.to_state = 'Open' AND i.last_seen_at >= %(since)s
), hands AS (
    SELECT o.*
    FROM override o
    WHERE o.created_at < %(until)s AND coalesce(o.ended_at, o.expires_at) > %(since)s
)
SELECT json_build_object(
    'minutes', (
        SELECT coalesce(json_agg(json_build_array(
            m.minute, m.attempts, m.firsts, m.retries, m.failed, m.refused_budget,
            m.cost_gbp::text, m.wasted_gbp::text, m.unpriced
        ) ORDER BY m.minute), '[]')
        FROM (
            SELECT r.minute, sum(r.attempts) AS attempts, sum(r.firsts) AS firsts,
                   sum(r.retries) AS retries, sum(r.failed) AS failed,
                   sum(r.refused_budget) AS refused_budget, sum(r.cost_gbp) AS cost_gbp,
                   sum(r.wasted_gbp) AS wasted_gbp, sum(r.unpriced) AS unpriced
            FROM (
                -- Derived minutes are kept as long as raw rows; the gateways' own only two days.
                SELECT minute, attempts, firsts, retries, failed, refused_budget, cost_gbp,
                       wasted_gbp, unpriced
                FROM rollup_circuit_minute
                WHERE minute < (SELECT upto FROM derived)
                UNION ALL
                SELECT minute, attempts, firsts, retries, failed, refused_budget, cost_gbp,
                       wasted_gbp, unpriced
                FROM rollup_minute
                WHERE minute >= (SELECT upto FROM derived)
            ) AS r
            WHERE r.minute >= date_trunc('minute', %(since)s::timestamptz) AND r.minute < %(until)s
            GROUP BY r.minute
        ) AS m
    ),
    'errors', (
        SELECT coalesce(json_agg(json_build_array(e.minute, e.reason, e.n) ORDER BY e.minute), '[]')
        FROM (
            SELECT date_trunc('minute', a.occurred_at) AS minute, a.reason, count(*) AS n
            FROM attempt a
            WHERE a.occurred_at >= %(since)s AND a.occurred_at < %(until)s AND a.counts
            GROUP BY 1, 2
        ) AS e
    ),
    'changes', (
        SELECT coalesce(json_agg(json_build_array(
            c.instance_id, c.circuit_id, c.occurred_at, c.from_state, c.to_state, c.cause, c.mode
        ) ORDER BY c.occurred_at, c.number), '[]')
        FROM changed c
        WHERE c.circuit_id IN (SELECT circuit_id FROM sick)
    ),
    'before', (
        SELECT coalesce(json_agg(json_build_array(
            b.instance_id, b.circuit_id, b.to_state, b.mode)), '[]')
        FROM before b
        WHERE b.circuit_id IN (SELECT circuit_id FROM sick)
    ),
    'circuits', (
        SELECT coalesce(json_agg(json_build_array(c.id, c.provider, c.model, c.region)
                                 ORDER BY c.provider, c.model, c.region), '[]')
        FROM circuit c
        WHERE c.id IN (SELECT circuit_id FROM sick)
    ),
    'watchers', (
        SELECT coalesce(json_agg(json_build_array(
            s.instance_id, s.circuit_id, s.state, s.mode, s.since)), '[]')
        FROM circuit_state s
        WHERE s.circuit_id IN (SELECT circuit_id FROM sick)
    ),
    'instances', (
        SELECT coalesce(json_agg(json_build_array(
            i.id, g.name, i.slot, coalesce(i.started_at, i.first_seen_at), i.last_seen_at,
            coalesce(i.goodbye_at, i.replaced_at)
        ) ORDER BY g.name, i.slot, i.id), '[]')
        FROM instance i
        JOIN gateway g ON g.id = i.gateway_id
        WHERE i.first_seen_at < %(until)s
          AND i.last_seen_at >= %(since)s::timestamptz - interval '1 day'
    ),
    'overrides', (
        SELECT coalesce(json_agg(json_build_object(
            'uid', o.uid, 'name', o.name, 'mode', o.mode, 'gateway', o.gateway,
            'selector', o.selector, 'provider', o.provider, 'model', o.model, 'region', o.region,
            'reason', o.reason, 'created_at', o.created_at, 'created_by', o.created_by,
            'over_at', coalesce(o.ended_at, o.expires_at), 'end_cause', o.end_cause
        ) ORDER BY o.created_at, o.id), '[]')
        FROM hands o
    ),
    'deliveries', (
        -- Of every generation, because an extension is a new one of the same hand.
        SELECT coalesce(json_agg(json_build_array(
            d.uid, d.instance_id, d.verdict, d.reason, d.at, d.lifted_at)), '[]')
        FROM (
            SELECT DISTINCT ON (d.uid, d.instance_id)
                   d.uid, d.instance_id, d.verdict, d.reason,
                   min(d.acknowledged_at) OVER (PARTITION BY d.uid, d.instance_id) AS at,
                   d.lifted_at
            FROM delivery d
            JOIN hands o ON o.uid::text = d.uid
            WHERE d.verdict <> ''
            ORDER BY d.uid, d.instance_id, d.generation DESC
        ) AS d
    ),
    'marks', (
        SELECT coalesce(json_agg(json_build_array(a.uid, a.at, a.text, a.created_by)
                                 ORDER BY a.at, a.id), '[]')
        FROM annotation a
        WHERE a.at >= %(since)s AND a.at < %(until)s
    ),
    'limit_per_mille', (
        SELECT (b.spec ->> 'ratio_per_mille')::int
        FROM retry_budget b
        WHERE b.level = 'system' AND b.gateway = '' AND b.selector = ''
        ORDER BY b.name
        LIMIT 1
    )
)::text
