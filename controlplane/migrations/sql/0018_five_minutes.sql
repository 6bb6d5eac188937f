-- A circuit's derived minutes summed to five, for series: the 1,440 minutes of a busy circuit's day
-- are 157,000 bins, its 288 sums 46,000. Only what a series reads.
CREATE TABLE rollup_circuit_five_minutes (
    circuit_id       bigint      NOT NULL,
    at               timestamptz NOT NULL, -- of the first minute
    attempts         int         NOT NULL,
    firsts           int         NOT NULL,
    retries          int         NOT NULL,
    fallbacks        int         NOT NULL,
    redeliveries     int         NOT NULL,
    succeeded        int         NOT NULL,
    retryable        int         NOT NULL,
    permanent        int         NOT NULL,
    partial          int         NOT NULL,
    client_cancelled int         NOT NULL,
    client_deadline  int         NOT NULL,
    local_fault      int         NOT NULL,
    failed           int         NOT NULL,
    refused_breaker  int         NOT NULL,
    refused_override int         NOT NULL,
    refused_budget   int         NOT NULL,
    refused_other    int         NOT NULL,
    would_refuse     int         NOT NULL,
    unpriced         int         NOT NULL,
    cost_gbp         numeric     NOT NULL,
    wasted_gbp       numeric     NOT NULL,
    latency          bigint[]    NOT NULL,
    first_byte       bigint[]    NOT NULL,
    PRIMARY KEY (circuit_id, at)
);

-- By triggers of the minutes, not by the job that derives them: so a sum is what its minutes say
-- whoever writes or deletes them, a worker of the version before and retention among them. A sum
-- that is missing costs time only: whoever reads takes the minutes. It is made with a minute that
-- comes once all five are before the watermark, for it would be made five times while they come one
-- by one; so it stays missing where a circuit's last minutes were empty.
CREATE FUNCTION switchgear_sum_five_minutes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Two transactions with minutes of one sum: the second waits here for the first to commit, and
    -- its statements below see what that has written. A lock an hour: retention takes a week at
    -- once. Ascending, so that nobody waits in a circle.
    PERFORM pg_advisory_xact_lock(hashtext('switchgear_five_minutes'), hour)
    FROM (SELECT DISTINCT floor(extract(epoch FROM minute) / 3600)::int AS hour
          FROM changed ORDER BY 1) AS hours;
    DELETE FROM rollup_circuit_five_minutes AS f
    USING (SELECT DISTINCT circuit_id, date_bin('5 minutes', minute, 'epoch') AS at
           FROM changed) AS c
    WHERE f.circuit_id = c.circuit_id AND f.at = c.at;
    IF TG_OP = 'DELETE' THEN
        RETURN NULL;
    END IF;
    WITH due AS MATERIALIZED (
        SELECT DISTINCT circuit_id, date_bin('5 minutes', minute, 'epoch') AS at
        FROM changed
        WHERE date_bin('5 minutes', minute, 'epoch') + interval '5 minutes'
            <= (SELECT upto FROM rollup_watermark WHERE grain = 'minute')
    ), minutes AS MATERIALIZED (
        SELECT d.at, m.*
        FROM due d JOIN rollup_circuit_minute m
            ON m.circuit_id = d.circuit_id
            AND m.minute >= d.at AND m.minute < d.at + interval '5 minutes'
    ), bins AS (
        SELECT circuit_id, at,
            array_agg(bin ORDER BY bin) FILTER (WHERE what = 'latency') AS latency,
            array_agg(bin ORDER BY bin) FILTER (WHERE what = 'first_byte') AS first_byte
        FROM (
            SELECT m.circuit_id, m.at, b.what,
                ((b.bin >> 32) << 32) + sum(b.bin & 4294967295)::bigint AS bin
            FROM minutes m CROSS JOIN LATERAL (
                SELECT 'latency' AS what, unnest(m.latency) AS bin
                UNION ALL SELECT 'first_byte', unnest(m.first_byte)) AS b
            GROUP BY m.circuit_id, m.at, b.what, b.bin >> 32
        ) AS summed
        GROUP BY circuit_id, at
    ), sums AS (
        SELECT circuit_id, at,
            sum(attempts) AS attempts, sum(firsts) AS firsts, sum(retries) AS retries,
            sum(fallbacks) AS fallbacks, sum(redeliveries) AS redeliveries,
            sum(succeeded) AS succeeded, sum(retryable) AS retryable,
            sum(permanent) AS permanent, sum(partial) AS partial,
            sum(client_cancelled) AS client_cancelled, sum(client_deadline) AS client_deadline,
            sum(local_fault) AS local_fault, sum(failed) AS failed,
            sum(refused_breaker) AS refused_breaker, sum(refused_override) AS refused_override,
            sum(refused_budget) AS refused_budget, sum(refused_other) AS refused_other,
            sum(would_refuse) AS would_refuse, sum(unpriced) AS unpriced,
            sum(cost_gbp) AS cost_gbp, sum(wasted_gbp) AS wasted_gbp
        FROM minutes GROUP BY circuit_id, at
    )
    INSERT INTO rollup_circuit_five_minutes (
        circuit_id, at, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse, unpriced,
        cost_gbp, wasted_gbp, latency, first_byte)
    SELECT circuit_id, at, attempts, firsts, retries, fallbacks, redeliveries, succeeded,
        retryable, permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse, unpriced,
        cost_gbp, wasted_gbp, coalesce(latency, '{}'), coalesce(first_byte, '{}')
    FROM sums LEFT JOIN bins USING (circuit_id, at);
    RETURN NULL;
END $$;

CREATE TRIGGER rollup_circuit_minute_inserted AFTER INSERT ON rollup_circuit_minute
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_sum_five_minutes();
-- Twice: a row may be moved to another minute by hand.
CREATE TRIGGER rollup_circuit_minute_left AFTER UPDATE ON rollup_circuit_minute
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_sum_five_minutes();
CREATE TRIGGER rollup_circuit_minute_updated AFTER UPDATE ON rollup_circuit_minute
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_sum_five_minutes();
CREATE TRIGGER rollup_circuit_minute_deleted AFTER DELETE ON rollup_circuit_minute
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_sum_five_minutes();

-- The last day's minutes are derived once more, an hour at a time, by the job that does it anyhow:
-- their sums come with them. Older ones are read as minutes.
INSERT INTO rollup_dirty (grain, at)
SELECT DISTINCT 'minute', minute FROM rollup_circuit_minute
WHERE minute < (SELECT upto FROM rollup_watermark WHERE grain = 'minute')
  AND minute >= (SELECT upto FROM rollup_watermark WHERE grain = 'minute') - interval '1 day'
ON CONFLICT DO NOTHING;
