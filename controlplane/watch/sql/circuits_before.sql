-- What the wall shows of instances' breakers, to tell a change from a heartbeat.
SELECT s.instance_id, c.provider, c.model, c.region, s.number, s.state, s.mode, s.override_uid,
       s.would_be, s.ramp_percent, s.stuck, s.keys_ready, s.keys_total, s.keys_note
FROM circuit_state s JOIN circuit c ON c.id = s.circuit_id WHERE s.instance_id = ANY(%(instances)s)
