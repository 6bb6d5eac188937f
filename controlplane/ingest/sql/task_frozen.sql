-- Of these tasks, the caller's word that counts: the latest that was said within seven days of the
-- last request's end, of all that are kept and of the one that stands. ``frozen`` stays while there
-- is a later one, which a request that is yet to come may bring into force.
WITH wanted AS (
    SELECT t.gateway_id, t.tenant, t.task, t.last_ended_at + interval '7 days' AS until,
        t.explicit_at, t.explicit_id, t.explicit_success
    FROM task t
    JOIN unnest(%s::int[], %s::text[], %s::text[]) AS w(gateway_id, tenant, task)
        USING (gateway_id, tenant, task)
), word AS (
    SELECT gateway_id, tenant, task, o.occurred_at AS at, o.id, o.success, until
    FROM wanted JOIN outcome o USING (gateway_id, tenant, task)
    WHERE o.explicit
    UNION ALL
    SELECT gateway_id, tenant, task, explicit_at, explicit_id, explicit_success, until
    FROM wanted WHERE explicit_at IS NOT NULL
), counts AS (
    SELECT DISTINCT ON (gateway_id, tenant, task) gateway_id, tenant, task, at, id, success
    FROM word WHERE at <= until OR until IS NULL
    ORDER BY gateway_id, tenant, task, at DESC, id DESC, success DESC
)
UPDATE task AS t SET
    explicit_at = c.at, explicit_id = c.id, explicit_success = c.success,
    frozen = EXISTS (
        SELECT FROM word WHERE word.gateway_id = t.gateway_id AND word.tenant = t.tenant
            AND word.task = t.task AND word.at > word.until)
FROM wanted w LEFT JOIN counts c USING (gateway_id, tenant, task)
WHERE t.gateway_id = w.gateway_id AND t.tenant = w.tenant AND t.task = w.task
