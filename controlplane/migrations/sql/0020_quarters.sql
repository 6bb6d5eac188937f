-- What a derived hour holds by its quarters, in all: an hour that a midnight lies within is parted
-- by these between its two days (of zones whose midnights are not whole UTC hours). Without them
-- such hours, seven a week, were read from the raw events.
CREATE TABLE rollup_quarter (
    at                    timestamptz PRIMARY KEY,
    attempts              bigint      NOT NULL,
    firsts                bigint      NOT NULL,
    retries               bigint      NOT NULL,
    fallbacks             bigint      NOT NULL,
    redeliveries          bigint      NOT NULL,
    succeeded             bigint      NOT NULL,
    failed                bigint      NOT NULL,
    unpriced              bigint      NOT NULL,
    cost_estimated        bigint      NOT NULL,
    wasted_unpriced       bigint      NOT NULL,
    wasted_final_unpriced bigint      NOT NULL,
    tasks_succeeded       bigint      NOT NULL,
    tasks_failed          bigint      NOT NULL,
    cost_gbp              numeric     NOT NULL,
    wasted_gbp            numeric     NOT NULL,
    wasted_final_gbp      numeric     NOT NULL
);

-- An hour that is derived anew, or that is past its time, takes its quarters with it: whoever does
-- it. A worker of the version before leaves none behind, and the hour is read as it was.
CREATE FUNCTION switchgear_drop_quarters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM rollup_quarter AS q
    USING (SELECT DISTINCT hour FROM gone) AS g
    WHERE q.at >= g.hour AND q.at < g.hour + interval '1 hour';
    RETURN NULL;
END $$;
CREATE TRIGGER rollup_hour_deleted AFTER DELETE ON rollup_hour
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_drop_quarters();
