-- What is desired and what was last observed, as one JSON document out of one snapshot.
-- One statement, so that no reader ever sees an override without its revision, or half a status.
-- "version" orders two reads by what they could see: a later snapshot never has a lower xmax, and
-- at the same xmax never more transactions still running.
WITH present AS (
    SELECT i.*
    FROM instance i
    WHERE i.goodbye_at IS NULL
      AND i.replaced_at IS NULL
      AND i.last_seen_at > statement_timestamp() - interval '1 hour'
)
SELECT json_build_object(
    'at', statement_timestamp(),
    'version', (
        SELECT pg_snapshot_xmax(s)::text::bigint * 1024
             + 1023 - least(1023, (SELECT count(*) FROM pg_snapshot_xip(s)))
        FROM pg_current_snapshot() AS s
    ),
    'epoch', (SELECT epoch FROM revision),
    'revision', (SELECT value FROM revision),
    'gateways', (
        SELECT coalesce(json_agg(json_build_object(
            'id', g.id,
            'name', g.name,
            'labels', g.labels,
            'generation', coalesce(c.generation, 0),
            'hash', coalesce(c.hash, ''),
            'compiled_at', c.compiled_at
        ) ORDER BY g.name), '[]')
        FROM gateway g
        LEFT JOIN gateway_config c ON c.gateway_id = g.id
    ),
    'instances', (
        SELECT coalesce(json_agg(json_build_object(
            'id', p.id,
            'gateway_id', p.gateway_id,
            'boot_id', p.boot_id,
            'slot', p.slot,
            'version', p.version,
            'started_at', p.started_at,
            'last_seen_at', p.last_seen_at,
            'received_generation', p.received_generation,
            'applied_generation', p.applied_generation,
            'applied_hash', p.applied_hash,
            'checkpointed_generation', p.checkpointed_generation,
            'applied_at', p.applied_at,
            'pending_since', (
                SELECT min(g.compiled_at)
                FROM config_generation g
                WHERE g.gateway_id = p.gateway_id AND g.generation > p.applied_generation
            ),
            'reports', p.status_seq,
            'epoch', p.epoch,
            'config_source', p.config_source,
            'refused_generation', p.refused_generation,
            'refused_reason', p.refused_reason,
            'spool_events', coalesce((p.spool ->> 'events')::bigint, 0),
            'spool_dropped', coalesce((p.spool ->> 'dropped')::bigint, 0),
            'lost_batches', coalesce((SELECT m.lost FROM missing_batches m WHERE m.instance_id = p.id), 0),
            'items', (
                SELECT coalesce(json_agg(item), '[]')
                FROM jsonb_array_elements(p.items) AS item
                WHERE item ->> 'verdict' IN ('Rejected', 'Unsupported')
            )
        ) ORDER BY p.slot, p.id), '[]')
        FROM present p
    ),
    'circuits', (
        SELECT coalesce(json_agg(json_build_array(c.id, c.provider, c.model, c.region)
                                 ORDER BY c.provider, c.model, c.region), '[]')
        FROM circuit c
        WHERE EXISTS (SELECT FROM circuit_state s JOIN present p ON p.id = s.instance_id
                      WHERE s.circuit_id = c.id)
           OR EXISTS (SELECT FROM rollup_minute r
                      WHERE r.circuit_id = c.id
                        AND r.minute > statement_timestamp() - interval '16 minutes')
    ),
    'states', (
        SELECT coalesce(json_agg(json_build_array(
            s.instance_id, s.circuit_id, s.state, s.since, s.cause, s.mode, s.override_uid,
            s.would_be, s.ramp_percent, s.stuck, s.next_probe_at,
            s.keys_ready, s.keys_total, s.keys_note,
            coalesce((s.counters ->> 'calls')::bigint, 0),
            coalesce((s.counters ->> 'failures')::bigint, 0),
            coalesce((s.counters ->> 'consecutive')::bigint, 0)
        )), '[]')
        FROM circuit_state s
        JOIN present p ON p.id = s.instance_id
    ),
    'overrides', (
        SELECT coalesce(json_agg(json_build_object(
            'uid', o.uid,
            'name', o.name,
            'mode', o.mode,
            'gateway', o.gateway,
            'selector', o.selector,
            'provider', o.provider,
            'model', o.model,
            'region', o.region,
            'reason', o.reason,
            'generation', o.generation,
            'resource_version', o.resource_version,
            'created_at', o.created_at,
            'created_by', o.created_by,
            'updated_at', o.updated_at,
            'expires_at', o.expires_at,
            'allow_last_healthy', o.allow_last_healthy
        ) ORDER BY o.name), '[]')
        FROM override o
        WHERE o.ended_at IS NULL AND o.expires_at > statement_timestamp()
    ),
    'deliveries', (
        SELECT coalesce(json_agg(json_build_array(
            d.instance_id, d.uid, d.verdict, d.reason, d.message,
            d.delivered_at, d.acknowledged_at, d.first_effect_at, d.field_path
        )), '[]')
        FROM delivery d
        JOIN override o ON o.uid::text = d.uid AND o.generation = d.generation
        JOIN present p ON p.id = d.instance_id
        WHERE o.ended_at IS NULL AND o.expires_at > statement_timestamp()
    ),
    'local', (
        SELECT coalesce(json_agg(json_build_object(
            'uid', l.uid,
            'gateway_id', l.gateway_id,
            'host', l.host,
            'mode', l.mode,
            'provider', l.provider,
            'model', l.model,
            'region', l.region,
            'reason', l.reason,
            'made_by', l.made_by,
            'created_at', l.created_at,
            'expires_at', l.expires_at
        ) ORDER BY l.expires_at, l.id), '[]')
        FROM local_override l
        WHERE l.ended_at IS NULL AND l.expires_at > statement_timestamp()
    ),
    'claim', (
        SELECT json_build_array(c.holder, c.note, c.expires_at)
        FROM claim c
        WHERE c.ended_at IS NULL AND c.expires_at > statement_timestamp()
    ),
    'budgets', (
        SELECT coalesce(json_agg(json_build_object(
            'name', b.name,
            'level', b.level,
            'gateway', b.gateway,
            'selector', b.selector,
            'provider', b.provider,
            'model', b.model,
            'region', b.region,
            'tenant', b.tenant,
            'ratio_per_mille', coalesce((b.spec ->> 'ratio_per_mille')::int, 100)
        ) ORDER BY b.name), '[]')
        FROM retry_budget b
    ),
    'policies', (
        SELECT coalesce(json_agg(json_build_object(
            'name', p.name,
            'gateway', p.gateway,
            'selector', p.selector,
            'provider', p.provider,
            'model', p.model,
            'region', p.region,
            'slow_call_seconds', coalesce((p.spec ->> 'slow_call_seconds')::float8, 60),
            'slow_ratio', (p.spec ->> 'slow_ratio')::float8
        ) ORDER BY p.name), '[]')
        FROM breaker_policy p
    ),
    'balances', (
        SELECT coalesce(json_agg(json_build_array(t.scope, t.balance, t.earned, t.spent, t.refused)
                                 ORDER BY t.scope), '[]')
        FROM (
            SELECT s.scope, sum(s.balance) AS balance, sum(s.earned) AS earned,
                   sum(s.spent) AS spent, sum(s.refused) AS refused
            FROM budget_state s
            JOIN present p ON p.id = s.instance_id
            WHERE p.last_seen_at > statement_timestamp() - interval '30 seconds'
            GROUP BY s.scope
        ) AS t
    )
)::text
