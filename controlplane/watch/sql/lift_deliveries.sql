-- What an instance no longer holds, once it applied a snapshot without it.
UPDATE delivery d SET lifted_at = %(now)s
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r(instance_id bigint, held jsonb)
WHERE d.instance_id = r.instance_id AND d.lifted_at IS NULL AND d.verdict <> ''
  AND NOT r.held ? (d.uid || '/' || d.generation)
