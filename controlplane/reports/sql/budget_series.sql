-- What one scope's buckets held over [start, end), by step: of each instance its last word in the
-- step (earned, spent and refused are within its window), and those of all instances added up.
-- A step in which nobody spoke is absent. Gateways: NULL for all.
WITH last_word AS (
    SELECT DISTINCT ON (at, instance_id)
        date_bin(%(step)s, occurred_at, %(start)s) AS at, instance_id,
        balance, earned, spent, refused
    FROM budget_event
    WHERE scope = %(scope)s AND occurred_at >= %(start)s AND occurred_at < %(end)s
      AND (%(gateways)s::int[] IS NULL OR gateway_id = ANY(%(gateways)s::int[]))
    ORDER BY at, instance_id, occurred_at DESC, id DESC
)
SELECT at, count(*), count(*) FILTER (WHERE balance <= 0), sum(balance), sum(earned), sum(spent),
    sum(refused)
FROM last_word GROUP BY at ORDER BY at
