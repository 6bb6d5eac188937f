"""What the door refuses, with which status, and that it reads nothing from strangers."""

import asyncio
import gc
import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from backports import zstd
from psycopg import AsyncConnection

from controlplane.api.hot import events
from controlplane.api.hot.unpack import MOST_PARTS
from controlplane.asgi import application
from controlplane.ingest import receipts
from controlplane.ingest.read import ReadBatch
from tests.asgi import call
from tests.controlplane.ingest.batches import attempt, batch, encoded
from tests.controlplane.ingest.conftest import Sender

MIB = 1024 * 1024


def bomb(plain_bytes: int) -> bytes:
    # gzip members one after another unpack to the whole, and one is quickly made.
    member = gzip.compress(b"a" * (32 * MIB))
    return member * (plain_bytes // (32 * MIB))


async def test_a_stranger_is_refused_before_its_body_is_read(sender: Sender) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}):
        given = {"content-type": "application/json", "content-encoding": "gzip"} | headers
        answer = await call("POST", "/api/v1/events", body=bomb(128 * MIB), headers=given)
        assert answer.status == 401
        assert answer.body_read == 0


async def test_a_token_in_the_url_is_refused(sender: Sender) -> None:
    answer = await call(
        "POST", "/api/v1/events", query=f"token={sender.token}", headers={"content-type": "x/y"}
    )
    assert (answer.status, answer.json()["code"]) == (400, "token_in_url")


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, lambda b: b])
async def test_packed_and_plain_batches_are_read(
    sender: Sender, pack: Callable[[bytes], bytes]
) -> None:
    name = {gzip.compress: "gzip", zstd.compress: "zstd"}.get(pack, "identity")
    body = pack(encoded(batch(*(attempt() for _ in range(50)))))
    answer = await sender.post(body, content_encoding=name)
    assert answer.json()["stored"] == 50


async def test_a_bomb_is_refused_within_bounded_memory(sender: Sender) -> None:
    body = bomb(1024 * MIB)
    assert len(body) < 4 * MIB
    tracemalloc.start()
    answer = await sender.post(body, content_encoding="gzip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status == 413
    assert peak < 100 * MIB


async def test_a_single_stream_that_is_too_large_is_refused(sender: Sender) -> None:
    answer = await sender.post(gzip.compress(b"a" * (33 * MIB)), content_encoding="gzip")
    assert answer.status == 413


async def test_a_zstd_bomb_is_refused(sender: Sender) -> None:
    answer = await sender.post(zstd.compress(b"a" * (40 * MIB)), content_encoding="zstd")
    assert answer.status == 413


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
async def test_a_body_of_very_many_parts_is_refused(
    sender: Sender, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    packed, empty = pack(encoded(batch(attempt()))), pack(b"")
    # 4 MiB of empty parts held the web process for minutes: each copies all that is behind it.
    answer = await sender.post(empty * MOST_PARTS + packed, content_encoding=encoding)
    assert (answer.status, answer.json()["code"]) == (400, "bad_encoding")
    assert await sender.count("receipt") == 0
    answer = await sender.post(empty * (MOST_PARTS - 1) + packed, content_encoding=encoding)
    assert (answer.status, answer.json()["stored"]) == (200, 1)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_damaged_and_cut_bodies_are_refused(sender: Sender, encoding: str) -> None:
    pack: Any = {"gzip": gzip.compress, "zstd": zstd.compress}[encoding]
    whole = pack(encoded(batch(attempt())))
    for body in (whole[:-3], whole + b"more", b"not packed at all"):
        answer = await sender.post(body, content_encoding=encoding)
        assert (answer.status, answer.json()["code"]) == (400, "bad_encoding")


async def test_other_types_and_encodings_are_not_read(sender: Sender) -> None:
    assert (await sender.post(b"{}", content_type="text/plain")).status == 415
    assert (await sender.post(b"{}", content_encoding="br")).status == 415


async def test_a_body_over_its_bound_is_refused_as_soon_as_it_is_known(sender: Sender) -> None:
    answer = await sender.post(b" " * (5 * MIB))
    assert answer.status == 413
    assert answer.body_read <= 4 * MIB + 65536
    assert (await sender.post(b"{}", content_length=str(5 * MIB))).status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 20_000 + b"]" * 20_000,
        b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b"{",
        b"",
        b"\xff\xfe",
        b"null",
        b'"text"',
    ],
)
async def test_what_is_no_batch_is_a_client_error(sender: Sender, body: bytes) -> None:
    answer = await sender.post(body)
    assert answer.status in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_deep_json_inside_a_batch_is_a_client_error(sender: Sender) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    body = encoded(batch(attempt()))[:-1] + b',"extra":' + deep + b"}"
    assert (await sender.post(body)).status == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seq": 0}, "seq"),
        ({"seq": "7"}, "seq"),
        ({"instance": "x"}, "instance"),
        ({"slot": "a\0b"}, "slot"),
        ({"slot": ""}, "slot"),
        ({"sent_at": "2026-01-01T00:00:00"}, "sent_at"),
        ({"sent_at": "0001-01-01T00:00:00+14:00"}, "sent_at"),
        ({"events": [{}] * 5001}, "events"),
    ],
)
async def test_a_wrong_head_names_its_field(
    sender: Sender, change: dict[str, Any], field: str
) -> None:
    answer = await sender.post(batch() | change)
    assert (answer.status, answer.json()["code"]) == (422, "invalid_batch")
    assert answer.json()["errors"][0]["field"] == field


async def test_an_empty_batch_is_a_batch(sender: Sender) -> None:
    assert (await sender.send(batch()))["contiguous"] == 1


async def test_a_full_door_says_when_to_come_again(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_MOST_IN_FLIGHT", 0)
    answer = await sender.post(batch(attempt()))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert await sender.count("attempt") == 0


@pytest.mark.parametrize("room", ["_SENT_ROOM", "_UNPACKED_ROOM"])
async def test_a_batch_that_waits_too_long_for_its_room_is_sent_away(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    monkeypatch.setattr(events, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(events, room, 100)
    monkeypatch.setattr(events, "_doors", type(events._doors)())
    held = events.door().sent if room == "_SENT_ROOM" else events.door().unpacked
    async with held.taken(1, wait_s=1):
        answer = await sender.post(batch(attempt()))
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert (await sender.send(batch(attempt())))["stored"] == 1


async def test_one_gateways_many_requests_leave_places_for_another(
    make_sender: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await make_sender(), await make_sender()
    monkeypatch.setattr(events, "_MOST_OF_ONE", 3)
    sent = [one.post(batch(attempt(), seq=seq)) for seq in range(1, 11)]
    answers = await asyncio.gather(*sent, other.post(batch(attempt())))
    assert answers[-1].status == 200
    statuses = [answer.status for answer in answers[:-1]]
    assert set(statuses) == {200, 503}
    assert await one.count("attempt") == statuses.count(200)


async def test_one_gateways_slow_bodies_leave_room_for_another(
    make_sender: Callable[[], Any],
) -> None:
    """They say that they are large, and then they do not come."""
    one, other = await make_sender(), await make_sender()
    asked, sent = asyncio.Semaphore(0), []

    async def receive() -> dict[str, Any]:
        asked.release()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])
            asked.release()

    most = events._SENT_ROOM // events.MOST_BYTES_SENT
    headers = {
        "authorization": f"Bearer {one.token}",
        "content-type": "application/json",
        "content-length": str(events.MOST_BYTES_SENT),
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/events",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    slow = [asyncio.create_task(application(scope, receive, send)) for _ in range(most)]
    try:
        async with asyncio.timeout(30):
            for _ in range(most // 2):  # as many have room of their gateway; the others wait
                await asked.acquire()
        assert (await other.send(batch(attempt())))["stored"] == 1
        assert sent == []
    finally:
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert (await one.send(batch(attempt())))["stored"] == 1


async def test_another_method_is_not_allowed(sender: Sender) -> None:
    assert (await call("GET", "/api/v1/events")).status == 405


async def test_a_transaction_that_postgres_ended_for_idleness_is_sent_again(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of this process: stopped, or starved on a busy machine."""
    keep = receipts.keep_letters

    async def idle(conn: AsyncConnection, letters: Any) -> None:
        monkeypatch.undo()
        pid = conn.info.backend_pid
        await conn.execute("SET LOCAL idle_in_transaction_session_timeout = 1")
        alive = "SELECT FROM pg_stat_activity WHERE pid = %s"
        async with asyncio.timeout(30):
            while await sender.query(alive, [pid]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await keep(conn, letters)

    monkeypatch.setattr(receipts, "keep_letters", idle)
    sent = batch(attempt(), {"kind": "nonsense"})
    refused = await sender.post(sent)
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert await sender.count("attempt") == 0
    assert (await sender.send(sent))["stored"] == 1


async def test_a_batch_that_was_not_stored_leaves_nothing_in_memory(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Postgres is away every try fails: what they held must not wait for the collector."""

    async def away(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("the connection is lost")

    await sender.send(batch(attempt()))
    monkeypatch.setattr("controlplane.ingest.commit.store", away)
    gc.collect()
    gc.disable()
    try:
        for seq in range(2, 6):
            assert (await sender.post(batch(attempt(), seq=seq))).status == 503
        held = [found.seq for found in gc.get_objects() if type(found) is ReadBatch]
    finally:
        gc.enable()
    # The last one's task may still be ending.
    assert set(held) <= {5}
