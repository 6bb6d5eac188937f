-- What several gateways are to run, as of one statement, without their specs.
SELECT g.id, r.epoch::text AS epoch, clock_timestamp() AS server_time, c.generation, c.hash,
       (SELECT count(*) FROM instance i
        WHERE i.gateway_id = g.id AND i.replaced_at IS NULL AND i.goodbye_at IS NULL
          AND i.last_seen_at > clock_timestamp() - make_interval(secs => %(live_s)s)) AS instances
FROM revision r CROSS JOIN gateway g LEFT JOIN gateway_config c ON c.gateway_id = g.id
WHERE g.id = ANY(%(gateways)s)
