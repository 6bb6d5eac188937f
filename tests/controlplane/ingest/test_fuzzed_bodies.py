"""Whatever bytes come: no 500, no hang, every event accounted for, and the neighbour is stored."""

from __future__ import annotations

import asyncio
import gzip
import json
import uuid
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.models.pool import close_pool
from tests.controlplane.ingest.batches import (
    attempt,
    batch,
    budget,
    encoded,
    outcome,
    refusal,
    transition,
)
from tests.controlplane.ingest.conftest import Sender, new_sender

REFUSALS = (400, 413, 415, 422)
PATIENCE_SECONDS = 60
Change = Callable[[bytes], bytes]

HOSTILE = [
    b"\x00",
    b"\\u0000",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\\ud800",
    b"\\udc00\\ud800",
    "\u202e\ufeff".encode(),
    b"1e400",
    b"-1e400",
    b"9" * 400,
    b"-9223372036854775809",
    b"18446744073709551616",
    b"1.0000000000000000000000001",
    b"NaN",
    b"null",
    b"true",
    b'""',
    b'"' + b"a" * 5000 + b'"',
    b"[" * 3000,
    b'{"a":' * 3000,
    b"[" * 3000 + b"]" * 3000,
    b"{}",
    b'"9999-12-31T23:59:59.999999-23:59"',
    b'"0001-01-01T00:00:00+23:59"',
    b'"2026-02-30T00:00:00Z"',
    b'"2026-11-30T03:10:60Z"',
    b'"seq":2,',
    b'"events":[],',
    b'"instance":"00000000-0000-0000-0000-000000000000",',
    b'"kind":"budget",',
    b"'; DROP TABLE attempt; --",
    b"//",
    b"\\",
]
# A field's value as it stands in a batch: what is put in its place reaches that field's reader.
_FIELDS = sorted(
    {
        key
        for make in (attempt(), refusal(), outcome(), transition(1, "Open"), budget(), batch())
        for key in make
    }
    - {"events"}
)


def _at(share: float, body: bytes) -> int:
    return int(share * len(body))


def _insert(share: float, what: bytes) -> Change:
    return lambda body: body[: _at(share, body)] + what + body[_at(share, body) :]


def _cut(share: float, size: int) -> Change:
    return lambda body: body[: _at(share, body)] + body[_at(share, body) + size :]


def _repeat(share: float, size: int) -> Change:
    return lambda body: body[: _at(share, body) + size] + body[_at(share, body) :]


def _flip(share: float, bits: int) -> Change:
    def change(body: bytes) -> bytes:
        place = _at(share, body)
        return body[:place] + bytes(b ^ bits for b in body[place : place + 1]) + body[place + 1 :]

    return change


def _value(field: str, what: bytes) -> Change:
    """Another value for the first field of that name."""

    def change(body: bytes) -> bytes:
        before, found, after = body.partition(f'"{field}":'.encode())
        if not found:
            return body
        try:
            _, end = json.JSONDecoder().raw_decode(after.decode())
        except (ValueError, RecursionError):
            return body
        return before + found + what + after.decode()[end:].encode()

    return change


shares = st.floats(0, 1, exclude_max=True)
sizes = st.integers(1, 60)
hostile = st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=8)
byte_changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(_insert, shares, hostile),
    st.builds(_cut, shares, sizes),
    st.builds(_repeat, shares, sizes),
    st.builds(_flip, shares, st.integers(1, 255)),
    st.builds(_cut, shares, st.just(10**9)),
)
plain_changes = byte_changes | st.builds(_value, st.sampled_from(_FIELDS), hostile)
packers: dict[str, Change] = {
    "identity": bytes,
    "gzip": lambda body: gzip.compress(body, 1),
    "zstd": zstd.compress,
}
makers = st.sampled_from(
    [attempt, refusal, outcome, budget, lambda: transition(1, "Open"), lambda: transition(2, "x")]
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes, str]:
    """Plain bytes (as far as they were made), the body as sent, and its encoding."""
    events = [make() for make in draw(st.lists(makers, min_size=1, max_size=4))]
    plain = encoded(batch(*events, boot=uuid.uuid4(), slot="fuzz/0"))
    for change in draw(st.lists(plain_changes, max_size=3)):
        plain = change(plain)
    encoding = draw(st.sampled_from(sorted(packers)))
    body = packers[encoding](plain)
    if encoding != "identity" and draw(st.booleans()):
        changed = draw(byte_changes)(body)
        # What is damaged after packing holds events that nobody can count from outside.
        return (plain if changed == body else b""), changed, encoding
    return plain, body, encoding


@pytest.fixture
def door(transactional_db: None) -> Sender:
    return new_sender()


async def _send(sender: Sender, plain: bytes, body: bytes, encoding: str) -> None:
    answer = await sender.post(body, content_encoding=encoding)
    assert answer.status in (200, *REFUSALS), answer.body
    if answer.status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        return
    receipt = answer.json()
    if plain:
        sent = len(json.loads(plain.decode("utf-8", "replace"))["events"])
        told = sum(receipt.get(n, 0) for n in ("stored", "duplicates")) + len(
            receipt.get("unread", [])
        )
        assert told == sent, (receipt, plain)


async def _send_all(sender: Sender, drawn: list[tuple[bytes, bytes, str]]) -> None:
    """All at once, with a good batch among them that must be stored whole."""
    good = batch(*(attempt() for _ in range(3)), boot=uuid.uuid4(), slot="good/0")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            for each in drawn:
                group.create_task(_send(sender, *each))
            receipt = await sender.send(good)
        assert (receipt["stored"], receipt.get("unread", [])) == (3, [])
    finally:
        await close_pool()


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(bodies(), min_size=8, max_size=12))
def test_no_bytes_are_a_fault(door: Sender, drawn: list[tuple[bytes, bytes, str]]) -> None:
    async_to_sync(_send_all)(door, drawn)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bombs_are_refused_and_the_neighbour_is_stored(door: Sender, encoding: str) -> None:
    zeros = packers[encoding](b" " * (4 * 2**20))
    bombs = [(b"", zeros * 12, encoding), (b"", packers[encoding](zeros * 12), encoding)]
    async_to_sync(_send_all)(door, bombs)
