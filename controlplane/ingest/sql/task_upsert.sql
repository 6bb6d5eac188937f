-- Merge what outcomes say of their tasks: the rule of domain/tasks, which any order obeys. Returns
-- the tasks that have, or may have had, a word of more than seven days after their last request:
-- which word counts there is for task_frozen.sql to find.
WITH merged AS (
    INSERT INTO task AS t (
        gateway_id, tenant, task, first_started_at, first_request, route, last_ended_at,
        explicit_at, explicit_id, explicit_success, implicit_at, implicit_id, implicit_success,
        frozen)
    SELECT *, COALESCE(explicit_at > last_ended_at + interval '7 days', false)
    FROM unnest(
        %s::int[], %s::text[], %s::text[], %s::timestamptz[], %s::uuid[], %s::text[],
        %s::timestamptz[], %s::timestamptz[], %s::uuid[], %s::boolean[], %s::timestamptz[],
        %s::uuid[], %s::boolean[]) AS r(
        gateway_id, tenant, task, first_started_at, first_request, route, last_ended_at,
        explicit_at, explicit_id, explicit_success, implicit_at, implicit_id, implicit_success)
    ON CONFLICT (gateway_id, tenant, task) DO UPDATE SET
        (first_started_at, first_request, route) = (
            SELECT s, r, w FROM (VALUES
                (t.first_started_at, t.first_request, t.route),
                (EXCLUDED.first_started_at, EXCLUDED.first_request, EXCLUDED.route)) AS v(s, r, w)
            ORDER BY s NULLS LAST, r, w COLLATE "C" LIMIT 1),
        last_ended_at = GREATEST(t.last_ended_at, EXCLUDED.last_ended_at),
        (explicit_at, explicit_id, explicit_success) = (
            SELECT a, i, s FROM (VALUES
                (t.explicit_at, t.explicit_id, t.explicit_success),
                (EXCLUDED.explicit_at, EXCLUDED.explicit_id, EXCLUDED.explicit_success))
                AS v(a, i, s)
            -- One that counts before one that does not: its raw row may be gone.
            ORDER BY a > GREATEST(t.last_ended_at, EXCLUDED.last_ended_at) + interval '7 days',
                a DESC NULLS LAST, i DESC, s DESC LIMIT 1),
        (implicit_at, implicit_id, implicit_success) = (
            SELECT a, i, s FROM (VALUES
                (t.implicit_at, t.implicit_id, t.implicit_success),
                (EXCLUDED.implicit_at, EXCLUDED.implicit_id, EXCLUDED.implicit_success))
                AS v(a, i, s)
            ORDER BY a DESC NULLS LAST, i DESC, s DESC LIMIT 1),
        frozen = t.frozen OR COALESCE(GREATEST(t.explicit_at, EXCLUDED.explicit_at)
            > GREATEST(t.last_ended_at, EXCLUDED.last_ended_at) + interval '7 days', false)
    RETURNING gateway_id, tenant, task, frozen
)
SELECT gateway_id, tenant, task FROM merged WHERE frozen
