-- What the runtime's role is to own and does not: everything in our schema but the audit and the
-- list of migrations. A sequence that belongs to a column follows its table.
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
    AND c.relname <> ALL (%(kept)s)
    AND pg_get_userbyid(c.relowner) <> %(runtime)s
    AND NOT EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
            AND d.refclassid = 'pg_class'::regclass AND c.relkind = 'S')
    AND NOT EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY c.relname
