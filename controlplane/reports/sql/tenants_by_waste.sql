-- The tenants whose finally wasted spend was greatest in the hours of [start, end). Of each hour
-- the 200 largest tenants are told apart; the rest are (other).
SELECT tenant, sum(attempts), sum(cost_gbp), sum(wasted_gbp), sum(wasted_final_gbp),
    sum(wasted_final_unpriced), sum(tasks_succeeded), sum(tasks_failed)
FROM rollup_hour_tenant
WHERE hour >= %(start)s AND hour < %(end)s
GROUP BY tenant
ORDER BY sum(wasted_final_gbp) DESC, tenant COLLATE "C"
LIMIT %(limit)s
