-- Events that could not be read or stored, newest first. Gateway: NULL for all.
SELECT g.name, i.slot, i.boot_id, d.seq, d.index, d.received_at, d.reason, d.body
FROM dead_letter d
JOIN gateway g ON g.id = d.gateway_id
LEFT JOIN instance i ON i.id = d.instance_id
WHERE d.received_at >= %(since)s AND d.received_at < %(until)s
  AND (%(gateway)s::text IS NULL OR g.name = %(gateway)s)
ORDER BY d.received_at DESC, d.id DESC
LIMIT %(limit)s
