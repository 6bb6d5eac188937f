-- A chain over the audit: each link hashes the one before it and everything that its entry says, so
-- that an entry which was changed, taken out or slipped in past the guard is found afterwards.
-- The columns are named one by one: a column that is added later must not break older links.
CREATE FUNCTION switchgear_audit_hash(before bytea, e audit_entry) RETURNS bytea
    LANGUAGE sql STABLE AS $$
    SELECT sha256(before || convert_to(jsonb_build_array(
        e.id, (extract(epoch FROM e.at) * 1000000)::bigint, e.actor, e.actor_kind, e.action,
        e.object_kind, e.object_name, e.reason, e.before, e.after, e.address, e.request_id,
        e.resource_version)::text, 'UTF8'))
$$;

CREATE FUNCTION switchgear_audit_link() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    newest audit_link;
BEGIN
    -- Held to commit, so that links are made in the order in which they are seen.
    PERFORM pg_advisory_xact_lock(hashtextextended('switchgear.audit_link', 0));
    SELECT * INTO newest FROM audit_link ORDER BY seq DESC LIMIT 1;
    INSERT INTO audit_link (seq, entry_id, hash)
    VALUES (coalesce(newest.seq, 0) + 1, NEW.id,
            switchgear_audit_hash(coalesce(newest.hash, ''::bytea), NEW));
    RETURN NULL;
END $$;

-- What was written before the chain is linked as it stands now.
DO $$
DECLARE
    entry audit_entry;
    place bigint := 0;
    held bytea := '';
BEGIN
    FOR entry IN SELECT * FROM audit_entry ORDER BY id LOOP
        place := place + 1;
        held := switchgear_audit_hash(held, entry);
        INSERT INTO audit_link (seq, entry_id, hash) VALUES (place, entry.id, held);
    END LOOP;
END $$;

CREATE TRIGGER audit_entry_linked AFTER INSERT ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION switchgear_audit_link();
CREATE TRIGGER audit_link_append_only BEFORE UPDATE OR DELETE ON audit_link
    FOR EACH ROW EXECUTE FUNCTION switchgear_refuse_change();
CREATE TRIGGER audit_link_no_truncate BEFORE TRUNCATE ON audit_link
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_refuse_change();
