-- The wall's document as it was at a moment: what instances had said by then, and nothing later.
-- Kept for as long as transitions are. Not known of the past, and so left out: which generation each
-- instance had, bucket balances, what budgets allowed. An instance counts as in contact until its
-- last word; a breaker without a change in the day before is what its row says, if that is old enough.
WITH present AS (
    SELECT i.id, i.gateway_id, i.boot_id, i.slot, i.version, i.started_at,
           least(i.last_seen_at, %(at)s::timestamptz) AS last_seen_at
    FROM instance i
    WHERE i.first_seen_at <= %(at)s
      AND i.last_seen_at > %(at)s::timestamptz - interval '1 hour'
      AND coalesce(i.goodbye_at, 'infinity') > %(at)s
      AND coalesce(i.replaced_at, 'infinity') > %(at)s
), newest AS (
    SELECT DISTINCT ON (t.instance_id, t.circuit_id) t.*
    FROM transition t
    WHERE t.occurred_at > %(at)s::timestamptz - interval '1 day' AND t.occurred_at <= %(at)s
    ORDER BY t.instance_id, t.circuit_id, t.occurred_at DESC, t.number DESC
), hand AS (
    SELECT o.*
    FROM override o
    WHERE o.created_at <= %(at)s AND coalesce(o.ended_at, o.expires_at) > %(at)s
), told AS (
    SELECT DISTINCT ON (d.instance_id, d.uid)
           d.instance_id, d.uid, d.verdict, d.reason, d.message, d.delivered_at,
           d.acknowledged_at, d.first_effect_at
    FROM delivery d
    JOIN hand o ON o.uid::text = d.uid
    WHERE d.delivered_at <= %(at)s
    ORDER BY d.instance_id, d.uid, d.generation DESC
), known AS (
    SELECT s.instance_id, s.circuit_id,
           coalesce(n.to_state,
                    CASE WHEN s.since <= %(at)s AND s.mode = 'Auto' THEN s.state END,
                    'Closed') AS state,
           coalesce(n.occurred_at, CASE WHEN s.since <= %(at)s THEN s.since END, p.started_at,
                    p.last_seen_at) AS since,
           coalesce(n.cause, 'Boot') AS cause, n.next_probe_at, n.calls, n.failures, n.consecutive,
           (SELECT o.mode
            FROM told t
            JOIN hand o ON o.uid::text = t.uid
            JOIN circuit c ON c.id = s.circuit_id
            WHERE t.instance_id = s.instance_id AND t.verdict = 'Applied'
              AND t.acknowledged_at <= %(at)s
              AND o.provider IN ('', c.provider) AND o.model IN ('', c.model)
              AND (o.region IN ('', c.region) OR (o.region = '-' AND c.region = ''))
            ORDER BY o.model = '', o.region = '', o.provider = ''
            LIMIT 1) AS mode
    FROM circuit_state s
    JOIN present p ON p.id = s.instance_id
    LEFT JOIN newest n ON n.instance_id = s.instance_id AND n.circuit_id = s.circuit_id
)
SELECT json_build_object(
    'at', %(at)s::timestamptz,
    'version', 0,
    'epoch', '',
    'revision', 0,
    'gateways', (
        SELECT coalesce(json_agg(json_build_object(
            'id', g.id, 'name', g.name, 'labels', g.labels, 'generation', 0, 'hash', '',
            'compiled_at', NULL
        ) ORDER BY g.name), '[]')
        FROM gateway g
    ),
    'instances', (
        SELECT coalesce(json_agg(json_build_object(
            'id', p.id, 'gateway_id', p.gateway_id, 'boot_id', p.boot_id, 'slot', p.slot,
            'version', p.version, 'started_at', p.started_at, 'last_seen_at', p.last_seen_at,
            'received_generation', 0, 'applied_generation', 0, 'applied_hash', '',
            'applied_at', NULL, 'pending_since', NULL, 'reports', 1, 'epoch', '',
            'config_source', '', 'spool_events', 0, 'spool_dropped', 0, 'lost_batches', 0,
            'items', json_build_array()
        ) ORDER BY p.slot, p.id), '[]')
        FROM present p
    ),
    'circuits', (
        SELECT coalesce(json_agg(json_build_array(c.id, c.provider, c.model, c.region)
                                 ORDER BY c.provider, c.model, c.region), '[]')
        FROM circuit c
        WHERE c.first_seen_at <= %(at)s
          AND (EXISTS (SELECT FROM known k WHERE k.circuit_id = c.id)
               OR EXISTS (SELECT FROM rollup_minute r
                          WHERE r.circuit_id = c.id AND r.minute <= %(at)s
                            AND r.minute > %(at)s::timestamptz - interval '16 minutes'))
    ),
    'states', (
        SELECT coalesce(json_agg(json_build_array(
            k.instance_id, k.circuit_id, k.state, k.since, k.cause, coalesce(k.mode, 'Auto'), '',
            CASE WHEN k.mode IS NULL THEN '' ELSE k.state END, 100, false, k.next_probe_at,
            NULL, NULL, '', coalesce(k.calls, 0), coalesce(k.failures, 0),
            coalesce(k.consecutive, 0)
        )), '[]')
        FROM known k
        JOIN circuit c ON c.id = k.circuit_id AND c.first_seen_at <= %(at)s
    ),
    'overrides', (
        SELECT coalesce(json_agg(json_build_object(
            'uid', o.uid, 'name', o.name, 'mode', o.mode, 'gateway', o.gateway,
            'selector', o.selector, 'provider', o.provider, 'model', o.model, 'region', o.region,
            'reason', o.reason, 'generation', o.generation,
            'resource_version', o.resource_version, 'created_at', o.created_at,
            'created_by', o.created_by, 'updated_at', o.created_at, 'expires_at', o.expires_at,
            'allow_last_healthy', o.allow_last_healthy
        ) ORDER BY o.name), '[]')
        FROM hand o
    ),
    'deliveries', (
        SELECT coalesce(json_agg(json_build_array(
            t.instance_id, t.uid,
            CASE WHEN t.acknowledged_at <= %(at)s THEN t.verdict ELSE '' END,
            t.reason, t.message, t.delivered_at, t.acknowledged_at, t.first_effect_at
        )), '[]')
        FROM told t
        JOIN present p ON p.id = t.instance_id
    ),
    'budgets', json_build_array(),
    'balances', json_build_array(),
    'claim', (
        SELECT json_build_array(c.holder, c.note, c.expires_at)
        FROM claim c
        WHERE c.claimed_at <= %(at)s AND coalesce(c.ended_at, c.expires_at) > %(at)s
        LIMIT 1
    )
)::text
