"""Streams that must not go on, and a database that turns out to be older than its gateways."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from controlplane.actions import gateways
from controlplane.actions.actor import SYSTEM
from controlplane.api.hot import auth
from controlplane.errors import InvalidInput
from controlplane.models import AuditEntry, GatewayConfig, GatewayToken, Revision
from controlplane.notify import Hub
from controlplane.watch import stream
from controlplane.watch.heads import Heads, Position
from tests import builders
from tests.controlplane.test_watch import fetch, settled, token
from tests.controlplane.watching import watch

__all__ = ["token"]


def revoke() -> None:
    row = GatewayToken.objects.get(gateway__name="eu-1")
    gateways.revoke_token(actor=SYSTEM, name="eu-1", token_id=row.pk, now=builders.now())


async def test_a_stream_ends_when_its_token_is_revoked(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TOKEN_SECONDS", 0.05)
    monkeypatch.setattr(auth, "CACHE_SECONDS", 0.05)
    async with watch("eu-1", token) as reader:
        await settled(reader)
        assert await reader.silent(0.3)
        await sync_to_async(revoke)()
        assert await reader.next() is None


def expire() -> None:
    ended = builders.now() - timedelta(seconds=1)
    GatewayToken.objects.filter(gateway__name="eu-1").update(expires_at=ended)


async def test_a_stream_ends_when_its_token_expires(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TOKEN_SECONDS", 0.05)
    monkeypatch.setattr(auth, "CACHE_SECONDS", 0.05)
    async with watch("eu-1", token) as reader:
        await settled(reader)
        await sync_to_async(expire)()
        assert await reader.next() is None


def epoch() -> str:
    return str(Revision.objects.get(id=1).epoch)


def epochs_minted() -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action="new_epoch"))


async def test_a_gateway_that_was_told_more_makes_a_new_epoch_once(token: str) -> None:
    known = (await fetch(token)).json()
    ahead = f"&generation={known['generation'] + 5}&hash=ff&epoch={known['epoch']}"
    async with watch("eu-1", token, ahead) as reader:
        assert reader.task is not None
        await reader.task
    assert reader.status == 410
    assert b'"ahead"' in reader.body
    renewed = await sync_to_async(epoch)()
    assert renewed != known["epoch"]
    minted = await sync_to_async(epochs_minted)()
    assert [e.reason for e in minted] == [
        f"eu-1 was told generation {known['generation'] + 5};"
        f" this database has {known['generation']}"
    ]
    # The next one speaks of an epoch that is no more: it simply gets what is desired.
    async with watch("eu-1", token, ahead) as again:
        frame = await again.next()
        assert frame is not None
        assert (frame.event, frame.data["epoch"]) == ("snapshot", renewed)


def allow(reason: str) -> Any:
    return gateways.allow_shrink(actor=SYSTEM, name="eu-1", reason=reason, now=builders.now())


def relabel() -> None:
    builders.override(provider="openai")
    row = GatewayConfig.objects.get(gateway__name="eu-1").gateway
    gateways.relabel(
        actor=SYSTEM,
        name="eu-1",
        labels={"a": "b"},
        now=builders.now(),
        expected_version=row.resource_version,
    )


async def test_the_word_that_it_may_shrink_is_of_one_generation(token: str) -> None:
    before = (await fetch(token)).json()
    assert before["may_shrink"] is False
    with pytest.raises(InvalidInput, match="reason"):
        await sync_to_async(allow)(" ")
    async with watch("eu-1", token) as reader:
        await settled(reader)
        await sync_to_async(allow)("restored on purpose")
        frame = await reader.next()
        assert frame is not None
        assert (frame.data["may_shrink"], frame.data["hash"]) == (True, before["hash"])
        assert frame.data["generation"] == before["generation"] + 1
    await sync_to_async(relabel)()
    assert (await fetch(token)).json()["may_shrink"] is False


async def test_one_position_is_acted_on_once() -> None:
    """A stream that has read a new epoch before the shared position did waits; it does not spin."""
    heads, ended = Heads(Hub()), asyncio.Event()
    seen = Position("new", 7)
    with heads.following() as wakeups:
        news = partial(stream._news, heads, seen, wakeups=wakeups, ended=ended)
        assert await news(acted=Position(), timeout=0.01) is None, "nothing was read yet"
        heads._move(Position("old", 9))
        assert await news(acted=Position(), timeout=5) == Position("old", 9)
        assert await news(acted=heads.at, timeout=0.01) is None
        heads._move(seen)
        assert await news(acted=Position("old", 9), timeout=0.01) is None
        heads._move(Position("new", 8))
        assert await news(acted=Position("old", 9), timeout=5) == Position("new", 8)
