-- What a gateway is to run, as of one statement: revision and snapshot are of the same commit.
SELECT r.epoch::text AS epoch, r.value AS revision, clock_timestamp() AS server_time,
       c.generation, c.hash, c.items, c.may_shrink,
       c.spec,
       (SELECT count(*) FROM instance i
        WHERE i.gateway_id = %(gateway)s AND i.replaced_at IS NULL AND i.goodbye_at IS NULL
          AND i.last_seen_at > clock_timestamp() - make_interval(secs => %(live_s)s)) AS instances
FROM revision r LEFT JOIN gateway_config c ON c.gateway_id = %(gateway)s
