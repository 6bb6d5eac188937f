-- Breakers that an instance does not have any more. One that began after the report was made is not
-- in it for that reason alone, and stays.
WITH gone AS (
    DELETE FROM circuit_state s USING circuit c
    WHERE c.id = s.circuit_id AND s.instance_id = %(instance)s AND s.since < %(sent_at)s
      AND (c.provider, c.model, c.region) IN (
        SELECT * FROM unnest(%(providers)s::text[], %(models)s::text[], %(regions)s::text[]))
    RETURNING s.instance_id, s.circuit_id
)
INSERT INTO circuit_gone AS g (instance_id, circuit_id, at)
SELECT instance_id, circuit_id, %(sent_at)s FROM gone
ON CONFLICT (instance_id, circuit_id) DO UPDATE SET at = GREATEST(g.at, EXCLUDED.at)
