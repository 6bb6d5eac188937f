"""A route may give its last good answer again while every target is refused: exact and marked."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway import last_good
from gateway.asked import read
from gateway.last_good import KEPT_S, LARGEST, LastGood, key_of
from gateway.operations import of_path
from gateway.simulator.scenario import Fate
from tests.gateway import build
from tests.gateway.running import Running, running
from tests.gateway.test_proxy_gates import apply

ROUTE = """
[[routes]]
name = "kept"
last_good = true
targets = [{ provider = "openai", model = "gpt-4.1-mini" }]
"""
CALLERS = """
[[callers]]
key_sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
tenant = "other"
"""  # of "secret"


def force_open(gateway: Running) -> None:
    expires = datetime.now(UTC) + timedelta(minutes=5)
    forced = build.override(
        "o", "ForceOpen", "openai/", expires_at=expires, allow_last_healthy=True
    )
    assert apply(gateway, overrides=[forced], remaining={"o": 300})["o"].verdict == "Applied"


async def test_the_same_request_gets_its_last_good_answer_again_and_marked(tmp_path: Path) -> None:
    async with running(tmp_path, more=ROUTE) as gateway:
        good = await gateway.chat("kept", temperature=0)
        body = await good.read()
        force_open(gateway)
        again = await gateway.chat("kept", temperature=0)
        assert (again.status, await again.read()) == (200, body)
        assert again.headers["x-switchgear-decision"] == "last_good"
        assert again.headers["x-switchgear-attempts"] == "0"
        assert int(again.headers["x-switchgear-last-good-age"]) < 60
        assert again.headers["content-type"] == good.headers["content-type"]
        assert [(one.gate, one.detail) for one in gateway.refusals()] == [("override", "ForceOpen")]
        assert [(one.success, one.reason) for one in gateway.outcomes()][1] == (True, "last_good")
        assert gateway.openai.requests == 1


async def test_nothing_else_gets_it(tmp_path: Path) -> None:
    async with running(tmp_path, more=ROUTE + CALLERS, gateway="require_key = false") as gateway:
        assert (await gateway.chat("kept")).status == 200
        assert (await gateway.chat("alone")).status == 200
        force_open(gateway)
        other = {"authorization": "Bearer secret"}
        refused: list[tuple[str, dict[str, Any]]] = [
            ("kept", {"temperature": 0.5}),
            ("kept", {"stream": True}),
            ("kept", {"headers": other}),
            ("alone", {}),
        ]
        for route, fields in refused:
            assert (await gateway.chat(route, **fields)).status == 503, (route, fields)
        assert (await gateway.chat("kept")).status == 200


async def test_an_attempt_that_failed_is_not_papered_over(tmp_path: Path) -> None:
    async with running(tmp_path, more=ROUTE) as gateway:
        assert (await gateway.chat("kept")).status == 200
        gateway.fates(*[Fate.BAD_REQUEST])
        assert (await gateway.chat("kept")).status == 400


def test_what_is_held_is_bounded_in_time_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_good, "MOST", 3)
    held = LastGood()
    for number in range(5):
        held.keep(bytes([number]), {}, b"a" * 10, float(number))
    assert [held.find(bytes([number]), 5.0) is not None for number in range(5)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert held.find(b"\x02", 2.0 + KEPT_S - 1) is not None
    assert held.find(b"\x02", 2.0 + KEPT_S) is None
    held.keep(b"\x03", {}, b"a" * (LARGEST + 1), 6.0)
    assert held.find(b"\x03", 6.0) is None, "what is older than the newest answer is not given"
    monkeypatch.setattr(last_good, "MOST_BYTES", 25)
    held.keep(b"\x07", {}, b"a" * 10, 7.0)
    held.keep(b"\x08", {}, b"a" * 10, 7.0)
    assert held._size <= 25


@pytest.mark.parametrize(
    ("path", "body", "kept"),
    [
        ("chat/completions", b'{"model": "m"}', True),
        ("embeddings", b'{"model": "m", "input": "a"}', True),
        ("chat/completions", b'{"model": "m", "stream": true}', False),
        ("responses", b'{"model": "m"}', False),
        ("responses", b'{"model": "m", "store": false}', True),
        ("orders", b'{"model": "m"}', False),
    ],
)
def test_which_requests_have_one(path: str, body: bytes, kept: bool) -> None:
    operation = of_path(f"/v1/{path}")
    assert operation is not None
    asked = read(body)
    keys = {key_of(asked, operation, tenant, "r") for tenant in ("a", "b")}
    assert keys != {None} if kept else keys == {None}
    assert len(keys) == (2 if kept else 1)
