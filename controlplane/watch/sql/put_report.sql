UPDATE instance SET
    status_seq = %(seq)s, version = %(version)s, started_at = %(started_at)s,
    last_seen_at = GREATEST(last_seen_at, %(now)s), epoch = %(epoch)s,
    received_generation = %(received_generation)s, applied_generation = %(applied_generation)s,
    applied_hash = %(applied_hash)s, applied_at = %(applied_at)s,
    refused_generation = %(refused_generation)s, refused_reason = %(refused_reason)s,
    config_source = %(config_source)s, items = %(items)s::jsonb, spool = %(spool)s::jsonb,
    clock = %(clock)s::jsonb, capabilities = %(capabilities)s::jsonb,
    goodbye_at = CASE WHEN %(goodbye)s THEN COALESCE(goodbye_at, %(now)s) ELSE goodbye_at END
WHERE id = %(instance)s
