-- Bins of many histograms one after another, unsummed: for whoever sums them himself. Taking them
-- apart and together again by unnest and array_agg cost five times as much as the rest of a series.
CREATE AGGREGATE switchgear_concat(bigint[]) (SFUNC = array_cat, STYPE = bigint[]);
