"""The watch: whole snapshots, no revision missed, and streams that end when they should."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from asgiref.sync import sync_to_async

from controlplane.actions import gateways, overrides
from controlplane.actions.actor import SYSTEM
from controlplane.api.hot import lifespan
from controlplane.domain.overrides import OverrideMode
from controlplane.models.pool import conninfo
from controlplane.notify import hub
from controlplane.watch import stream
from controlplane.wire.desired import Snapshot, hash_of
from tests import builders
from tests.asgi import call
from tests.controlplane.watching import Reader, watch

MINUTES = timedelta(minutes=5)


def make_fleet() -> str:
    token = gateways.create(actor=SYSTEM, name="eu-1", now=builders.now()).token
    gateways.create(actor=SYSTEM, name="us-1", now=builders.now())
    builders.circuit("openai", "gpt-4o", "")
    return token


def force_now(**fields: Any) -> Any:
    values: dict[str, Any] = {
        "actor": SYSTEM,
        "mode": OverrideMode.FORCE_OPEN,
        "reason": "provider is failing",
        "expires_in": MINUTES,
        "provider": "openai",
        "now": builders.now(),
    }
    return overrides.force(**(values | fields))


force = sync_to_async(force_now)


@pytest.fixture
async def token(following: None) -> str:
    return await sync_to_async(make_fleet)()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def fetch(token: str, **headers: str) -> Any:
    return await call("GET", "/api/v1/gateways/eu-1/config", headers=bearer(token) | headers)


async def test_a_plain_get_gives_the_whole_snapshot_and_then_304(token: str) -> None:
    row = await force()
    answer = await fetch(token)
    assert answer.status == 200
    snapshot = msgspec.json.decode(answer.body, type=Snapshot)
    assert snapshot.hash == hash_of(snapshot.spec)
    assert answer.headers["etag"] == f'"{snapshot.generation}-{snapshot.hash}"'
    assert snapshot.items == snapshot.spec.count() == 1
    item = snapshot.spec.overrides[0]
    assert (item.name, item.mode, item.match.provider) == (row.name, "ForceOpen", "openai")
    assert 295 < snapshot.remaining_s[item.uid] <= 300
    again = await fetch(token, **{"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    await force(model="gpt-4o")
    assert (await fetch(token, **{"if-none-match": answer.headers["etag"]})).status == 200


async def test_a_caller_that_is_current_gets_a_bookmark_first(token: str) -> None:
    now = (await fetch(token)).json()
    query = f"&generation={now['generation']}&hash={now['hash']}"
    async with watch("eu-1", token, query) as reader:
        frame = await reader.next()
        assert frame is not None
        assert frame.event == "bookmark"
        assert frame.data["generation"] == now["generation"]


async def test_a_caller_that_is_behind_gets_the_whole_snapshot_first(token: str) -> None:
    async with watch("eu-1", token, "&generation=0&hash=") as reader:
        frame = await reader.next()
        assert frame is not None
        assert frame.event == "snapshot"
        assert frame.data["gateway"] == "eu-1"


async def settled(reader: Reader) -> int:
    first = await reader.next()
    assert first is not None
    return int(first.data["generation"])


async def test_a_change_reaches_the_stream_at_once(token: str) -> None:
    async with watch("eu-1", token) as reader:
        generation = await settled(reader)
        row = await force()
        frame = await reader.next()
        assert frame is not None
        assert (frame.event, frame.id) == ("snapshot", row.resource_version)
        assert frame.data["generation"] == generation + 1
        assert frame.data["spec"]["overrides"][0]["name"] == row.name


async def test_a_change_of_another_gateway_sends_nothing(token: str) -> None:
    async with watch("eu-1", token) as reader:
        await settled(reader)
        await force(gateway="us-1")
        assert await reader.silent(0.5)


async def test_a_lost_notification_is_made_good_by_the_poll(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watch("eu-1", token) as reader:
        await settled(reader)
        monkeypatch.setattr(hub, "_readers", {"desired": set(), "observed": set()})
        row = await force()
        frame = await reader.next()
        assert frame is not None
        assert frame.data["spec"]["overrides"][0]["name"] == row.name


async def test_a_watcher_never_skips_a_slow_transaction(token: str) -> None:
    """The slow one takes its revision first and commits last: nobody may see a later one before."""
    async with watch("eu-1", token) as reader:
        generation = await settled(reader)
        async with await psycopg.AsyncConnection.connect(conninfo()) as slow:
            await slow.execute("UPDATE revision SET value = value + 1")
            await slow.execute(
                "UPDATE gateway_config SET generation = generation + 1, hash = 'slow', spec = %s"
                " WHERE gateway_id = (SELECT id FROM gateway WHERE name = 'eu-1')",
                ('{"policies":[],"budgets":[],"overrides":[],"routes":[],"prices":[]}',),
            )
            quick = asyncio.create_task(force())
            # Neither is seen while the slow one has not committed: the quick one waits for it.
            assert await reader.silent(0.3)
            assert not quick.done()
            await slow.commit()
        row = await quick
        seen = []
        while not seen or not seen[-1].data["spec"]["overrides"]:
            frame = await reader.next()
            assert frame is not None
            seen.append(frame)
        assert [f.id for f in seen] == sorted({f.id for f in seen})
        assert seen[-1].id == row.resource_version
        assert seen[-1].data["generation"] == generation + 2


async def test_bookmarks_come_while_nothing_changes(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BOOKMARK_SECONDS", 0.1)
    async with watch("eu-1", token) as reader:
        await settled(reader)
        for _ in range(2):
            frame = await reader.next()
            assert frame is not None
            assert (frame.event, frame.data["instances"]) == ("bookmark", 1)


async def test_streams_end_when_the_process_is_to_stop(token: str) -> None:
    async with watch("eu-1", token) as reader:
        await settled(reader)
        lifespan.stopping.set()
        assert await reader.next() is None


async def test_a_stream_ends_by_rotation(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.api.hot.config.ROTATE_SECONDS", (0.2, 0.2))
    async with watch("eu-1", token) as reader:
        await settled(reader)
        assert await reader.next() is None


async def test_a_reader_that_hangs_up_gives_its_place_back(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS_A_GATEWAY", 1)
    async with watch("eu-1", token) as reader:
        await settled(reader)
        async with watch("eu-1", token) as second:
            assert second.status == 503
            assert second.headers["retry-after"] == "5"
        reader.hang_up()
        assert reader.task is not None
        async with asyncio.timeout(5):
            await reader.task
    async with watch("eu-1", token) as third:
        assert third.status == 200


REFUSED: list[tuple[str, str, int, str | None]] = [
    ("us-1", "", 403, "forbidden"),
    ("eu-1", "token=SECRET123", 400, "token_in_url"),
    ("eu-1", "generation=x&watch=1", 422, "invalid_input"),
    ("eu-1", "generation=-1", 422, "invalid_input"),
    ("eu-1", "%ff=%00&generation=1", 200, None),
]


async def test_what_is_refused(token: str) -> None:
    for name, query, status, code in REFUSED:
        path = f"/api/v1/gateways/{name}/config"
        answer = await call("GET", path, headers=bearer(token), query=query)
        assert (answer.status, answer.json().get("code")) == (status, code), query
        assert b"SECRET123" not in answer.body


async def test_an_unknown_token_is_401(token: str) -> None:
    assert (await fetch("sgg_unknown")).status == 401
