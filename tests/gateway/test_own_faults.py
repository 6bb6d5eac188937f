"""A fault of the gateway's own, at every step of an attempt: its end is in the spool even so."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from controlplane.wire.events import Attempt, Outcome, mint_id
from gateway.event_stream import EventStream
from gateway.outbox import Identity
from gateway.spool import Spool
from tests.gateway.build import attempt
from tests.gateway.fake_clock import FakeClock
from tests.gateway.running import Running, running, until_broken

NOT_SENT = ("gateway.exchange.Exchange._call", "gateway.upstream.Upstream.post")
AFTER = (
    "gateway.exchange.observation_of",
    "gateway.exchange.judged",
    "gateway.gates.Pass.settle",
    "gateway.live.Live.record",
    "gateway.live.Live.pace_key",
    "controlplane.domain.request.RequestLoop.observe",
    "gateway.ledger._wire",
)


class Broken(RuntimeError):
    """What no table knows."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken


async def next_is_served(gateway: Running) -> None:
    answer = await gateway.chat()
    assert answer.status == 200
    await answer.read()
    assert gateway.attempts()[-1].verdict == "success"
    assert gateway.agent.spool._marks == {}


def only_end(gateway: Running) -> Attempt:
    (ended,) = gateway.attempts()
    assert isinstance(ended, Attempt)
    assert (ended.verdict, ended.reason) == ("local_fault", "gateway_fault")
    assert (ended.counts_against_breaker, ended.served) == (False, False)
    assert [outcome.success for outcome in gateway.outcomes()] == [False]
    assert gateway.outcomes()[0].reason == "gateway_fault"
    assert gateway.agent.spool._marks == {}  # else every later batch would carry it
    return ended


@pytest.mark.parametrize("step", NOT_SENT + AFTER)
async def test_an_attempt_has_its_end_whatever_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with running(tmp_path) as gateway:
        gateway.conditions(chunk_ms=0.0)
        with monkeypatch.context() as patched:
            patched.setattr("gateway.judgement._rest_s", lambda *_: 1.0)  # so that a key is paced
            patched.setattr(step, broken)
            answer = await gateway.chat()
            assert answer.status == 500
            assert (await answer.json())["error"]["code"] == "gateway_fault"
        ended = only_end(gateway)
        if step in NOT_SENT:
            assert (ended.status, ended.billing) == (None, "not_billed")
        else:
            assert (ended.status, ended.billing) == (200, "unknown")
        if step in AFTER[-2:]:
            return  # the key was paced before it broke
        await next_is_served(gateway)


@pytest.mark.parametrize("step", ["gateway.ledger.Outcome", "gateway.gates.Pass.release"])
async def test_what_breaks_after_it_does_not_keep_the_end_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The end waits to share the outcome's write."""
    async with running(tmp_path) as gateway:
        gateway.conditions(chunk_ms=0.0)
        with monkeypatch.context() as patched:
            patched.setattr(step, broken)
            if step.endswith("release"):
                patched.setattr("gateway.exchange.Exchange._call", broken)
            assert (await gateway.chat()).status == 500
        assert len(gateway.attempts()) == 1
        assert gateway.agent.spool._marks == {}
        await next_is_served(gateway)


async def test_a_fault_in_the_middle_of_an_answer_breaks_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error's head must not stand inside a body."""
    async with running(tmp_path) as gateway:
        gateway.conditions(chunk_ms=5.0, output_tokens=400)
        reached = 0
        feed = EventStream.feed

        def sometimes(self: EventStream, data: bytes) -> bytes:
            nonlocal reached
            reached += 1
            if reached > 3:
                raise Broken
            return feed(self, data)

        with monkeypatch.context() as patched:
            patched.setattr(EventStream, "feed", sometimes)
            answer = await gateway.chat(stream=True)
            said = await until_broken(answer)
        assert said.startswith(b"data: {")
        assert b"HTTP/1.1" not in said
        ended = only_end(gateway)
        assert (ended.status, ended.billing) == (200, "unknown")
        gateway.conditions(chunk_ms=0.0)
        await next_is_served(gateway)


def spool(root: Path) -> Spool:
    return Spool(root, 0, Identity(uuid4(), "host/0", "demo"), FakeClock())


def kept(held: Spool) -> list[dict[str, Any]]:
    held.seal()
    batch = held.outbox.head()
    assert batch is not None
    events: list[dict[str, Any]] = msgspec.json.decode(held.outbox.body(batch, "e", 1))["events"]
    return events


def test_an_end_that_cannot_be_written_becomes_its_begin_mark_as_a_fault(tmp_path: Path) -> None:
    held = spool(tmp_path)
    mark = attempt(verdict="local_fault", reason="", billing="unknown", model="large")
    held.begin(mark)
    bad = msgspec.structs.replace(mark, served_model="\ud800", verdict="success", reason="ok")
    held.append(bad, outcome())
    first, second = kept(held)
    assert (first["id"], first["model"]) == (str(mark.id), "large")
    assert (first["verdict"], first["reason"], first["billing"]) == (
        "local_fault",
        "gateway_fault",
        "unknown",
    )
    assert second["kind"] == "outcome"
    assert held._marks == {}
    assert held.dropped == {}
    held.close()


def test_another_event_that_cannot_be_written_is_counted_and_takes_no_neighbour(
    tmp_path: Path,
) -> None:
    held = spool(tmp_path)
    held.append(attempt(), msgspec.structs.replace(outcome(), reason="\ud800"), outcome())
    assert [event["kind"] for event in kept(held)] == ["attempt", "outcome"]
    assert held.dropped == {"outcome": 1}
    held.close()


def outcome() -> Outcome:
    at = datetime(2026, 12, 1, tzinfo=UTC)
    return Outcome(id=mint_id(at, 1), occurred_at=at, tenant="a", success=True, ended_at=at)
