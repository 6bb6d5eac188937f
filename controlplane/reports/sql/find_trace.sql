-- Every gateway and tenant at which a task's id is known, or a request's of a task without one.
-- Gateway and tenant: NULL for any. A request of a task with an id leads to that task.
SELECT DISTINCT g.id, g.name, found.tenant, found.id
FROM (
    SELECT t.gateway_id, t.tenant, t.task AS id FROM task t WHERE t.task = %(text)s
    UNION
    SELECT o.gateway_id, o.tenant, COALESCE(o.task, o.request::text)
    FROM outcome o WHERE o.request = %(request)s::uuid
) AS found
JOIN gateway g ON g.id = found.gateway_id
WHERE (%(gateway)s::text IS NULL OR g.name = %(gateway)s)
  AND (%(tenant)s::text IS NULL OR found.tenant = %(tenant)s)
ORDER BY g.name, found.tenant, found.id
LIMIT %(limit)s
