-- Every task with an outcome in [start, end), from all its outcomes: the rule of domain/tasks.
-- A task that began before raw rows are kept is left as it is: part of what it was made of is gone.
WITH wanted AS (
    SELECT DISTINCT o.gateway_id, o.tenant, o.task
    FROM outcome o
    LEFT JOIN task t USING (gateway_id, tenant, task)
    WHERE o.occurred_at >= %(start)s AND o.occurred_at < %(end)s AND o.task IS NOT NULL
      AND (t.first_started_at IS NULL OR t.first_started_at >= %(kept_from)s)
), said AS (
    SELECT gateway_id, tenant, task, id, route, success, explicit,
        occurred_at, COALESCE(request, id) AS request,
        COALESCE(started_at, occurred_at) AS began, COALESCE(ended_at, occurred_at) AS ended
    FROM outcome JOIN wanted USING (gateway_id, tenant, task)
), first AS (
    SELECT DISTINCT ON (gateway_id, tenant, task) * FROM said WHERE NOT explicit
    ORDER BY gateway_id, tenant, task, began, request, route COLLATE "C"
), implicit AS (
    SELECT DISTINCT ON (gateway_id, tenant, task) * FROM said WHERE NOT explicit
    ORDER BY gateway_id, tenant, task, ended DESC, id DESC, success DESC
), word AS (
    SELECT said.*,
        COALESCE(said.occurred_at > implicit.ended + interval '7 days', false) AS frozen
    FROM said LEFT JOIN implicit USING (gateway_id, tenant, task)
    WHERE said.explicit
), explicit AS (
    SELECT DISTINCT ON (gateway_id, tenant, task) * FROM word WHERE NOT frozen
    ORDER BY gateway_id, tenant, task, occurred_at DESC, id DESC, success DESC
)
INSERT INTO task (
    gateway_id, tenant, task, first_started_at, first_request, route, last_ended_at,
    explicit_at, explicit_id, explicit_success, implicit_at, implicit_id, implicit_success, frozen)
SELECT gateway_id, tenant, task, first.began, first.request, COALESCE(first.route, ''),
    implicit.ended, explicit.occurred_at, explicit.id, explicit.success,
    implicit.ended, implicit.id, implicit.success,
    EXISTS (SELECT FROM word WHERE word.frozen AND word.gateway_id = wanted.gateway_id
            AND word.tenant = wanted.tenant AND word.task = wanted.task)
FROM wanted
LEFT JOIN first USING (gateway_id, tenant, task)
LEFT JOIN explicit USING (gateway_id, tenant, task)
LEFT JOIN implicit USING (gateway_id, tenant, task)
ON CONFLICT (gateway_id, tenant, task) DO UPDATE SET
    first_started_at = EXCLUDED.first_started_at, first_request = EXCLUDED.first_request,
    route = EXCLUDED.route, last_ended_at = EXCLUDED.last_ended_at,
    explicit_at = EXCLUDED.explicit_at, explicit_id = EXCLUDED.explicit_id,
    explicit_success = EXCLUDED.explicit_success, implicit_at = EXCLUDED.implicit_at,
    implicit_id = EXCLUDED.implicit_id, implicit_success = EXCLUDED.implicit_success,
    frozen = EXCLUDED.frozen
