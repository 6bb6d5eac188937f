-- Every link that does not hold, in order; at most 1,000.
WITH linked AS (
    SELECT l.seq, l.entry_id, l.hash,
           lag(l.hash, 1, ''::bytea) OVER (ORDER BY l.seq) AS before,
           lag(l.seq, 1, 0::bigint) OVER (ORDER BY l.seq) AS earlier
    FROM audit_link l
)
SELECT l.seq, l.entry_id,
       CASE WHEN l.seq <> l.earlier + 1 THEN 'links before it are missing'
            WHEN e.id IS NULL THEN 'its entry was taken out'
            ELSE 'its entry, or a link, was changed' END AS fault
FROM linked l
LEFT JOIN audit_entry e ON e.id = l.entry_id
WHERE l.seq <> l.earlier + 1
   OR e.id IS NULL
   OR l.hash <> switchgear_audit_hash(l.before, e)
ORDER BY l.seq
LIMIT 1000
