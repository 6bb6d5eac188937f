-- Where a task's id, or a request's, is known: tasks with the header by their key, requests without
-- one by their outcome within raw retention.
SELECT 'task' AS kind, t.gateway_id, g.name, t.tenant, t.task AS id,
       coalesce(t.explicit_at, t.implicit_at) AS at,
       coalesce(t.explicit_success, t.implicit_success) AS success
FROM task t
JOIN gateway g ON g.id = t.gateway_id
WHERE t.task = %(text)s
UNION ALL
SELECT 'request', o.gateway_id, g.name, o.tenant, coalesce(o.task, o.request::text), o.occurred_at,
       o.success
FROM outcome o
JOIN gateway g ON g.id = o.gateway_id
WHERE o.request = %(request)s::uuid
ORDER BY 6 DESC NULLS LAST
LIMIT 20
