"""Deadlines, redeliveries, tenants, tasks, admission, bodies: what bounds a request."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

import aiohttp
import pytest

from gateway.simulator.scenario import Fate
from tests.gateway.running import running, until_broken
from tests.gateway.waiting import until

SAY = [{"role": "user", "content": "oak elm"}]


async def test_routes_deadline_covers_attempts_and_waits(tmp_path: Path) -> None:
    async with running(tmp_path, deadline=0.5, attempt=0.3) as gateway:
        gateway.fates(*[Fate.HANG] * 3)
        began = time.monotonic()
        answer = await gateway.chat()
        assert time.monotonic() - began < 2
        assert answer.status == 504
        assert answer.headers["x-should-retry"] == "false"
        assert [one.reason for one in gateway.attempts()] == ["timeout", "client_deadline"]
        assert [one.counts_against_breaker for one in gateway.attempts()] == [True, False]
        await until(lambda: gateway.openai.abandoned == 2)


async def test_callers_own_short_deadline_never_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        gateway.fates(Fate.HANG)
        answer = await gateway.chat(headers={"x-switchgear-timeout": "0.2"})
        assert answer.status == 504
        attempt = gateway.attempts()[0]
        assert (attempt.verdict, attempt.counts_against_breaker) == ("client_deadline", False)


async def test_silence_inside_a_stream_ends_it(tmp_path: Path) -> None:
    async with running(tmp_path, idle=0.2) as gateway:
        gateway.conditions(chunk_ms=5_000.0, output_tokens=100)
        answer = await gateway.chat(stream=True)
        assert b"broke off" in await until_broken(answer)
        attempt = gateway.attempts()[0]
        assert (attempt.verdict, attempt.reason) == ("partial", "timeout")


async def test_same_key_in_flight_is_409_and_later_a_redelivery(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        key = {"idempotency-key": "k-1"}
        gateway.conditions(latency_ms=300.0)
        first = asyncio.create_task(gateway.chat(headers=key))
        await until(lambda: gateway.openai.in_flight)
        second = await gateway.chat(headers=key)
        assert second.status == 409
        assert second.headers["x-should-retry"] == "false"
        assert (await first).status == 200
        assert (await gateway.chat(headers=key)).status == 200
        assert [one.role for one in gateway.attempts()] == ["first", "redelivery"]


async def test_an_sdk_that_retries_is_a_redelivery(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.chat(headers={"x-stainless-retry-count": "1"})
        await gateway.chat(headers={"x-stainless-retry-count": "0"})
        assert [one.role for one in gateway.attempts()] == ["redelivery", "first"]


async def test_full_gateway_refuses_low_priority_first(tmp_path: Path) -> None:
    async with running(tmp_path, limits="in_flight = 5\nreserved = 1") as gateway:
        gateway.fates(*[Fate.HANG] * 4)

        def ask(priority: str) -> asyncio.Task[object]:
            return asyncio.create_task(gateway.chat(headers={"x-switchgear-priority": priority}))

        held = [ask("normal") for _ in range(3)]
        await until(lambda: gateway.openai.in_flight == 3)
        low = await gateway.chat(headers={"x-switchgear-priority": "low"})
        assert low.status == 503
        assert (await low.json())["error"]["code"] == "concurrency"
        held.append(ask("normal"))
        await until(lambda: gateway.openai.in_flight == 4)
        assert (await gateway.chat()).status == 503
        assert (await gateway.chat(headers={"x-switchgear-priority": "high"})).status == 200
        assert [one.gate for one in gateway.refusals()] == ["concurrency", "concurrency"]
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await until(lambda: len(gateway.outcomes()) == 7)


async def test_no_free_connection_is_a_refusal_and_not_an_attempt(tmp_path: Path) -> None:
    more = """
[[providers]]
name = "tight"
base_url = "http://127.0.0.1:9/v1"
connections = 1
[[routes]]
name = "tight"
targets = [{ provider = "tight", model = "m" }]
"""
    async with running(tmp_path, more=more) as gateway:
        # Nothing listens on the discard port: the attempt fails while connecting.
        answer = await gateway.chat("tight")
        assert answer.status == 502
        assert {one.reason for one in gateway.attempts()} == {"connect"}
        assert {one.billing for one in gateway.attempts()} == {"not_billed"}


async def test_trusted_key_names_the_tenant_and_a_plain_one_cannot(tmp_path: Path) -> None:
    def caller(key: str, tenant: str, trusted: str) -> str:
        digest = hashlib.sha256(key.encode()).hexdigest()
        return f'[[callers]]\nkey_sha256 = "{digest}"\ntenant = "{tenant}"\ntrusted = {trusted}\n'

    more = caller("k1", "search", "true") + caller("k2", "billing", "false")
    async with running(tmp_path, more=more) as gateway:
        for key in ("k1", "k2"):
            headers = {"authorization": f"Bearer {key}", "x-switchgear-tenant": "support"}
            assert (await gateway.chat(headers=headers)).status == 200
        assert [one.tenant for one in gateway.attempts()] == ["support", "billing"]
        unknown = await gateway.chat(headers={"authorization": "Bearer k3"})
        assert unknown.status == 401
        assert (await gateway.chat()).status == 401


async def test_task_and_its_explicit_outcome(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.chat(headers={"x-switchgear-task": "job-7"})
        url = "/switchgear/tasks/job-7/outcome"
        async with gateway.http.post(url, json={"success": False, "reason": "rejected"}) as said:
            assert said.status == 202
        for wrong in ({}, {"success": "yes"}, {"success": True, "extra": 1}):
            async with gateway.http.post(url, json=wrong) as answer:
                assert answer.status == 400
        assert gateway.attempts()[0].task == "job-7"
        implicit, explicit = gateway.outcomes()
        assert (implicit.explicit, implicit.success, implicit.task) == (False, True, "job-7")
        assert (explicit.explicit, explicit.success, explicit.task) == (True, False, "job-7")


async def test_body_above_the_limit_is_413(tmp_path: Path) -> None:
    async with running(tmp_path, limits="body_bytes = 2000") as gateway:
        answer = await gateway.chat(user="x" * 3000)
        assert answer.status == 413
        assert gateway.events == []


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
async def test_what_is_announced_too_long_is_413_before_any_of_it_comes(
    tmp_path: Path, expect: bytes
) -> None:
    async with running(tmp_path, limits="body_bytes = 2000") as gateway:
        reader, writer = await connect(gateway.url)
        writer.write((HEAD % 2001).replace(b"\r\n\r\n", b"\r\n" + expect + b"\r\n"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_large_body_is_not_repeated_once_it_may_have_arrived(tmp_path: Path) -> None:
    async with running(tmp_path, limits="repeatable_bytes = 100") as gateway:
        gateway.fates(Fate.OVERLOADED)
        assert (await gateway.chat("assistant", user="x" * 200)).status == 503
        assert len(gateway.attempts()) == 1


async def test_drain_finishes_what_is_in_flight(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        async with running(tmp_path) as gateway:
            gateway.conditions(latency_ms=300.0)
            url = f"{gateway.url}/v1/chat/completions"
            last = asyncio.create_task(http.post(url, json={"model": "alone", "messages": SAY}))
            await until(lambda: gateway.openai.in_flight)
        assert (await last).status == 200


async def test_what_outlasts_the_drain_is_cancelled_when_that_is_over(tmp_path: Path) -> None:
    """Not after the same time once more: by then the parent has killed the worker, and what it
    would have told of the request goes with it."""
    async with aiohttp.ClientSession() as http:
        async with running(tmp_path, deadline=60, attempt=60) as gateway:
            gateway.conditions(latency_ms=60_000.0)
            url = f"{gateway.url}/v1/chat/completions"
            body = {"model": "alone", "messages": SAY}
            lost = asyncio.gather(
                http.post(url, json=body),
                http.post(url, json={**body, "stream": True}),
                return_exceptions=True,
            )
            await until(lambda: gateway.openai.in_flight == 2)
        for error in await lost:
            assert isinstance(error, aiohttp.ClientConnectionError)
    ends = gateway.attempts()
    assert [(one.verdict, one.reason) for one in ends] == [("local_fault", "local_cancelled")] * 2
    assert all(1000 <= one.ended_ms < 1800 for one in ends)  # drain_seconds is 1
    assert not any(one.counts_against_breaker for one in ends)
    outcomes = [(one.success, one.reason) for one in gateway.outcomes()]
    assert outcomes == [(False, "local_cancelled")] * 2


async def test_body_that_never_ends_is_turned_away(tmp_path: Path) -> None:
    async with running(tmp_path, limits="body_seconds = 0.2") as gateway:
        reader, writer = await connect(gateway.url)
        writer.write(HEAD % 500 + b'{"model": ')
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_client_that_asks_before_it_sends_is_told_to_go_on(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        body = b'{"model": "alone", "messages": [{"role": "user", "content": "oak"}]}'
        reader, writer = await connect(gateway.url)
        writer.write((HEAD % len(body)).replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(body)
        assert await reader.readline() == b"\r\n"
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n"


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


async def test_body_that_is_not_what_it_says_is_a_400_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    async with running(tmp_path) as gateway, aiohttp.ClientSession() as session:
        url = f"{gateway.url}/v1/chat/completions"
        async with session.post(url, data=b"a secret prompt", headers=headers) as answer:
            assert answer.status == 400
            assert "content-encoding" in (await answer.json())["error"]["message"]
    assert not [record for record in caplog.records if record.exc_info]


async def test_what_is_not_http_is_logged_without_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nx-said: a secret\x01prompt\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    assert [record.levelname for record in caplog.records if "refused" in record.message] == [
        "WARNING"
    ]
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (b"x-long: " + b"y" * 9000, "longer than 8190 bytes"),
        (b"content-encoding: br", "content-encoding"),
        (b"content-length: 3", "not HTTP"),
        (b"x-said: a secret\x01prompt", "not HTTP"),
    ],
)
async def test_what_cannot_be_read_is_answered_in_the_apis_shape(
    tmp_path: Path, headers: bytes, said: str
) -> None:
    """Aiohttp's own answer is plain text that quotes what came, and an SDK would send it again."""
    async with running(tmp_path) as gateway:
        reader, writer = await connect(gateway.url)
        writer.write((HEAD % 2)[:-2] + headers + b"\r\n\r\n{}")
        async with asyncio.timeout(20):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert b" 400 " in head.split(b"\r\n")[0]
    assert b"x-should-retry: false" in head.lower()
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "unreadable_request")
    assert said in error["message"]
    assert "secret" not in error["message"]
