-- How each background job fares: when it last ended well, and since when it fails, and of what.
CREATE TABLE background_job (
    name           text        PRIMARY KEY,
    succeeded_at   timestamptz,
    failing_since  timestamptz,
    failed_at      timestamptz,
    error          text        NOT NULL DEFAULT ''
);
