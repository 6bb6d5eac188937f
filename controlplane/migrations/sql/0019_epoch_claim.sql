-- Whose word has given this database a new epoch, when, and how often it was refused since.
CREATE TABLE epoch_claim (
    gateway_id  int           PRIMARY KEY,
    mints       timestamptz[] NOT NULL DEFAULT '{}',
    refused     int           NOT NULL DEFAULT 0, -- within a day of refused_at
    refused_at  timestamptz,
    why         text          NOT NULL DEFAULT ''
);
