-- The end of the run of receipts that begins right after %(contiguous)s.
SELECT max(seq) FROM (
    SELECT seq, row_number() OVER (ORDER BY seq) AS place
    FROM receipt
    WHERE gateway_id = %(gateway)s AND instance_id = %(instance)s AND seq > %(contiguous)s
) AS later
WHERE seq = %(contiguous)s + place
