-- What an instance no longer holds, once it applied a snapshot without it.
UPDATE delivery SET lifted_at = %(now)s
WHERE instance_id = %(instance)s AND lifted_at IS NULL AND verdict <> ''
  AND NOT (uid || '/' || generation = ANY(%(held)s))
