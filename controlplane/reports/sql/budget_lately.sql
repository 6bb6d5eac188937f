-- The last hour by circuit and gateway: what budgets refused in it, and of its last whole minute the
-- first attempts and the retries (NULL when none of that minute is known).
SELECT circuit_id, gateway_id, sum(refused_budget),
    sum(firsts) FILTER (WHERE minute >= %(last)s), sum(retries) FILTER (WHERE minute >= %(last)s)
FROM rollup_minute
WHERE minute >= %(start)s AND minute < %(end)s
GROUP BY circuit_id, gateway_id
