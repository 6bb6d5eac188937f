"""One event that cannot be stored never costs its neighbours, and leaves its reason."""

import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controlplane.ingest import rows
from tests.controlplane.ingest.batches import (
    attempt,
    batch,
    budget,
    encoded,
    now,
    outcome,
    refusal,
    transition,
)
from tests.controlplane.ingest.conftest import Sender

BAD: list[tuple[dict[str, Any], str]] = [
    (attempt(ordinal=0), "ordinal: expected int >= 1"),
    (attempt(provider="open\0ai"), "provider: a text cannot hold a NUL"),
    (attempt(provider=""), "provider: expected str of length >= 1"),
    (attempt(tenant="t" * 201), "tenant: expected str of length <= 200"),
    (attempt(task="a\0"), "task: a text cannot hold a NUL"),
    (attempt(role="seventh"), "role: invalid enum value 'seventh'"),
    (attempt(tokens={"input": -5}), "tokens.input: expected int >= 0"),
    (attempt() | {"kind": "prophecy"}, "kind: invalid value 'prophecy'"),
    (attempt() | {"kind": "a\0b"}, "kind: invalid value 'a\\0b'"),
    (attempt() | {"kind": "k" * 5000}, "kind: invalid value 'kkk"),
    (attempt() | {"id": str(uuid.uuid4())}, "id: expected a UUIDv7"),
    (attempt() | {"occurred_at": now().isoformat()}, "id: expected a UUIDv7"),
    (attempt(now() - timedelta(days=36)), "occurred_at: older than the 35 days"),
    (attempt(now() + timedelta(hours=25)), "occurred_at: more than 24 hours ahead"),
    (outcome(started_at="0001-01-01T00:00:00+14:00"), "a time of this event"),
    (outcome(ended_at="9999-12-31T23:59:59Z"), "a time of this event"),
    (transition(1, "Open", next_probe_at="9999-12-31T23:59:59Z"), "a time of this event"),
    (transition(0, "Open"), "number: expected int >= 1"),
    (budget(balance=10**30), "balance: expected"),
    (refusal(gate="mood"), "gate: invalid enum value 'mood'"),
    ({}, "object missing required field kind"),
]


async def test_bad_events_are_kept_beside_stored_neighbours(sender: Sender) -> None:
    receipt = await sender.send(batch(attempt(), *(bad for bad, _ in BAD), attempt()))
    assert receipt["stored"] == 2
    assert [u["index"] for u in receipt["unread"]] == list(range(1, len(BAD) + 1))
    letters = await sender.rows("dead_letter", "index, reason, body")
    for (bad, reason), unread, letter in zip(BAD, receipt["unread"], letters, strict=True):
        assert unread["reason"].startswith(reason)
        assert len(unread["reason"]) <= 301
        assert letter[:2] == (unread["index"], unread["reason"])
        assert bytes(letter[2]) == encoded(bad)[: 16 * 1024]


@pytest.mark.parametrize(
    "broken",
    [b'"\xff\xfe"', rb'"\ud800"', b"1e999", b"3", b"null", b"[" * 600 + b"]" * 600],
)
async def test_bytes_that_are_no_event_cost_only_themselves(sender: Sender, broken: bytes) -> None:
    mark = "the-broken-one"
    body = encoded(batch(attempt(), attempt(reason=mark))).replace(encoded(mark), broken)
    receipt = await sender.send(body)
    assert receipt.get("stored") == 1
    assert [u["index"] for u in receipt["unread"]] == [1]


async def test_unknown_fields_are_ignored(sender: Sender) -> None:
    receipt = await sender.send(
        batch(attempt(colour="red", tokens={"input": 1, "output": 1, "audio": 9}), future=[1, 2])
    )
    assert receipt["stored"] == 1


async def test_an_impossible_count_is_kept_out_of_every_sum(sender: Sender) -> None:
    await sender.send(batch(attempt(tokens={"input": 2**53, "output": 7})))
    assert await sender.rows("attempt", "input_tokens, output_tokens, cost_gbp, cost_status") == [
        (None, 7, None, "invalid_usage")
    ]
    assert await sender.rows("rollup_minute", "input_tokens, output_tokens, unpriced") == [
        (0, 7, 1)
    ]


async def test_largest_values_that_the_wire_allows_are_stored(sender: Sender) -> None:
    big = 2**53
    receipt = await sender.send(
        batch(
            attempt(
                ordinal=10_000,
                status=999,
                retry_after_s=1e308,
                ended_ms=2**31 - 1,
                first_byte_ms=2**31 - 1,
                waited_ms=2**31 - 1,
                generation=big,
                task="\U0001f525" * 200,
            ),
            transition(big, "Open", counters={"calls": big, "failures": big}, generation=big),
            budget(balance=-big, earned=big, spent=big, refused=big, window_s=1e308),
        )
    )
    assert receipt == receipt | {"stored": 3}
    assert "unread" not in receipt


async def test_a_row_that_postgres_refuses_is_parted_from_its_neighbours(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fault that validation does not know of: the reason grows a NUL on the way to its column.
    real = rows._refusal

    def faulty(item: Any, event: Any) -> tuple[Any, ...]:
        row = list(real(item, event))
        row[7] = "nul\0" if event.detail == "poison" else row[7]
        return tuple(row)

    monkeypatch.setitem(rows._REST, "refusal", faulty)
    receipt = await sender.send(
        batch(attempt(), refusal(detail="poison"), refusal(), transition(1, "Open"))
    )
    assert receipt["stored"] == 3
    assert [u["index"] for u in receipt["unread"]] == [1]
    assert await sender.count("refusal") == 1
    ((body,),) = await sender.rows("dead_letter", "body")
    assert msgspec.json.decode(bytes(body))["detail"] == "poison"


async def test_many_dead_letters_are_cheap(sender: Sender) -> None:
    receipt = await sender.send(batch(*({"kind": "x", "n": n} for n in range(5000))))
    assert len(receipt["unread"]) == 5000
    assert await sender.count("dead_letter") == 5000


async def test_the_tables_have_the_columns_that_rows_are_made_for(sender: Sender) -> None:
    kinds = {
        "int4": "integer",
        "int8": "bigint",
        "int2": "smallint",
        "float8": "double precision",
        "bool": "boolean",
        "timestamptz": "timestamp with time zone",
    }
    for table, columns in rows.TABLES.items():
        found = await sender.query(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = %s AND table_schema = current_schema()",
            [table],
        )
        assert dict(found) == {name: kinds.get(kind, kind) for name, kind in columns}
