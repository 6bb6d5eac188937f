-- Breakers that an instance does not have any more, by its report made at that time: what happened
-- to one before it is history, and neither a late transition nor a rebuild brings it back.
CREATE TABLE circuit_gone (
    instance_id  bigint      NOT NULL REFERENCES instance ON DELETE CASCADE,
    circuit_id   bigint      NOT NULL REFERENCES circuit ON DELETE CASCADE,
    at           timestamptz NOT NULL,
    PRIMARY KEY (instance_id, circuit_id)
);
