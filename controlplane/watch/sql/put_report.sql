UPDATE instance i SET
    status_seq = r.seq, version = r.version, started_at = r.started_at,
    last_seen_at = GREATEST(i.last_seen_at, %(now)s), epoch = r.epoch,
    received_generation = r.received_generation, applied_generation = r.applied_generation,
    applied_hash = r.applied_hash, applied_at = r.applied_at,
    checkpointed_generation = r.checkpointed_generation,
    refused_generation = r.refused_generation, refused_reason = r.refused_reason,
    config_source = r.config_source, items = r.items, spool = r.spool, clock = r.clock,
    capabilities = r.capabilities,
    goodbye_at = CASE WHEN r.goodbye THEN COALESCE(i.goodbye_at, %(now)s) ELSE i.goodbye_at END
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r(
    instance_id bigint, seq bigint, version text, started_at timestamptz, epoch text,
    received_generation bigint, applied_generation bigint, applied_hash text,
    applied_at timestamptz, checkpointed_generation bigint, refused_generation bigint, refused_reason text, config_source text,
    items jsonb, spool jsonb, clock jsonb, capabilities jsonb, goodbye boolean)
WHERE i.id = r.instance_id
