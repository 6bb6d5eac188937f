-- Why the connected role could change the audit in spite of its guard; no row when it cannot.
-- MEMBER: whoever may SET ROLE to an owner is as good as one.
SELECT why FROM (
    SELECT 1 AS place, 'it is a superuser' AS why
    FROM pg_roles WHERE rolname = current_user AND rolsuper
    UNION ALL
    SELECT 2, 'it owns ' || relname FROM pg_class
    WHERE oid IN (to_regclass('audit_entry'), to_regclass('audit_link'))
        AND pg_has_role(relowner, 'MEMBER')
    UNION ALL
    SELECT 3, 'it may ' || lower(privilege) || ' ' || relname
    FROM pg_class, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS privilege
    WHERE oid IN (to_regclass('audit_entry'), to_regclass('audit_link'))
        AND has_table_privilege(oid, privilege)
    UNION ALL
    SELECT 4, 'it may update columns of ' || relname FROM pg_class
    WHERE oid IN (to_regclass('audit_entry'), to_regclass('audit_link'))
        AND has_any_column_privilege(oid, 'UPDATE')
    UNION ALL
    SELECT 5, 'it may insert into audit_link' FROM pg_class
    WHERE oid = to_regclass('audit_link') AND has_any_column_privilege(oid, 'INSERT')
    UNION ALL
    SELECT 6, 'it owns the function ' || proname FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
        AND proname IN
            ('switchgear_refuse_change', 'switchgear_audit_link', 'switchgear_audit_hash')
        AND pg_has_role(proowner, 'MEMBER')
    UNION ALL
    SELECT 7, 'it owns the schema' FROM pg_namespace
    WHERE nspname = current_schema() AND pg_has_role(nspowner, 'MEMBER')
    UNION ALL
    SELECT 8, 'it owns the database' FROM pg_database
    WHERE datname = current_database() AND pg_has_role(datdba, 'MEMBER')
    UNION ALL
    SELECT 9, 'it may make roles' FROM pg_roles WHERE rolname = current_user AND rolcreaterole
) AS found
ORDER BY place LIMIT 1
