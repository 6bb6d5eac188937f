-- The audit's guard by privilege as well as by trigger. Links are made with the owner's rights, so
-- that a role which may only INSERT entries gets them linked and can make no link of its own.
-- Nothing is looked up where that role may create: it could put its own function in the way.
DO $do$
BEGIN
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION %1$I.switchgear_audit_link() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            newest %1$I.audit_link;
        BEGIN
            -- Held to commit, so that links are made in the order in which they are seen.
            PERFORM pg_advisory_xact_lock(hashtextextended('switchgear.audit_link', 0));
            SELECT * INTO newest FROM %1$I.audit_link ORDER BY seq DESC LIMIT 1;
            INSERT INTO %1$I.audit_link (seq, entry_id, hash)
            VALUES (coalesce(newest.seq, 0) + 1, NEW.id,
                    %1$I.switchgear_audit_hash(coalesce(newest.hash, ''::bytea), NEW));
            RETURN NULL;
        END $body$
    $f$, current_schema());
END $do$;
ALTER FUNCTION switchgear_audit_hash(bytea, audit_entry) SET search_path = pg_catalog, pg_temp;

-- Where one role both owns and writes, it loses at least what it never needs. It could grant that
-- to itself again, so `manage.py check --database default` and /readyz say that it owns them.
DO $do$
DECLARE
    guarded text;
    owner text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['audit_entry', 'audit_link'] LOOP
        SELECT pg_get_userbyid(relowner) INTO owner FROM pg_class
        WHERE oid = format('%I.%I', current_schema(), guarded)::regclass;
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON %I FROM PUBLIC, %I', guarded, owner);
    END LOOP;
END $do$;
