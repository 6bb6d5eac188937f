-- Every bucket as each connected instance last told it: by its event, or by its status report, of
-- the two the newer. Gateways: NULL for all.
SELECT s.scope, g.name, i.slot, i.boot_id, s.balance, s.earned, s.spent, s.refused, s.window_s,
    s.reported_at
FROM budget_state s
JOIN instance i ON i.id = s.instance_id
JOIN gateway g ON g.id = i.gateway_id
WHERE i.last_seen_at > %(alive)s
  AND (%(gateways)s::int[] IS NULL OR s.gateway_id = ANY(%(gateways)s::int[]))
ORDER BY s.scope, g.name, i.slot, i.boot_id
