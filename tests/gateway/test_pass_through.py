"""GETs, forms and bodies of unknown kind: passed on as they are, in constant memory, once."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway import passing
from gateway.opaque import form_model
from tests.gateway.running import Running, running, until_broken
from tests.gateway.waiting import until

ROUTES = """
[[providers]]
name = "store"
base_url = "{store}"
keys = [{ name = "main", secret = "the-secret" }]
[[providers]]
name = "nobody"
base_url = "http://127.0.0.1:9/v1"
[[routes]]
name = "files"
attempt_seconds = 3
targets = [{ provider = "store", model = "whisper-1" },
           { provider = "openai", model = "gpt-4.1-mini" }]
[[routes]]
name = "moved"
targets = [{ provider = "nobody", model = "m" }, { provider = "store", model = "whisper-2" }]
"""
ROUTE = {"x-switchgear-route": "files"}
MIB = 2**20
NO_MODEL = {"content-type": "multipart/form-data; boundary=x"}


@dataclass
class Got:
    """One request as the provider saw it."""

    method: str
    target: str
    headers: dict[str, str]
    size: int = 0
    sha256: str = ""
    body: bytes = b""


@dataclass
class Store:
    """A provider that keeps what it got, and answers as told."""

    got: list[Got] = field(default_factory=list)
    status: int = 200
    answer: bytes = b'{"id": "file-1"}'
    pieces: int = 1
    cut_after: int = 0
    early: bool = False
    url: str = ""
    events: asyncio.Event | None = None
    """When to send the second of two events."""

    async def accept(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        got = Got(request.method, request.raw_path, headers)
        self.got.append(got)
        if self.early:
            return web.Response(status=413, body=b'{"error": {"message": "too large"}}')
        digest = hashlib.sha256()
        async for piece in request.content.iter_any():
            digest.update(piece)
            got.size += len(piece)
            if got.size <= MIB:
                got.body += piece
        got.sha256 = digest.hexdigest()
        if self.events is not None:
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.events.wait()
            await stream.write(b"data: 2\n\n")
            return stream
        if self.pieces == 1:
            return web.Response(
                status=self.status, body=self.answer, content_type="application/json"
            )
        response = web.StreamResponse(headers={"content-type": "application/octet-stream"})
        await response.prepare(request)
        for number in range(self.pieces):
            if self.cut_after and number == self.cut_after:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(self.answer)
        return response


@asynccontextmanager
async def store(tmp_path: Path) -> AsyncIterator[tuple[Running, Store]]:
    kept = Store()
    app = web.Application(client_max_size=2**40)
    app.router.add_route("*", "/v1/{path:.*}", kept.accept)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    kept.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
    try:
        async with running(tmp_path, more=ROUTES.replace("{store}", kept.url)) as gateway:
            yield gateway, kept
    finally:
        await runner.cleanup()


def form(model: str, size: int = 20_000) -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("language", "en")
    data.add_field("model", model)
    data.add_field("file", b"R" * size, filename="a.wav", content_type="audio/wav")
    return data


async def test_a_get_goes_to_the_named_route_with_its_query(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        headers = ROUTE | {"authorization": "Bearer callers-own", "cookie": "a=b"}
        answer = await gateway.http.get("/v1/files/file-AbC.1?limit=2&q=a%20b", headers=headers)
        assert (answer.status, await answer.json()) == (200, {"id": "file-1"})
        assert answer.headers["x-switchgear-circuit"] == "store/whisper-1"
        (got,) = kept.got
        assert (got.method, got.target) == ("GET", "/v1/files/file-AbC.1?limit=2&q=a%20b")
        assert got.headers["authorization"] == "Bearer the-secret"
        assert "cookie" not in got.headers
        assert "content-length" not in got.headers
        (attempt,) = gateway.attempts()
        assert (attempt.verdict, attempt.billing, attempt.tokens) == ("success", "not_billed", None)


async def test_a_get_is_tried_again_and_a_delete_is_not(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.status = 503
        answer = await gateway.http.get("/v1/files/x", headers=ROUTE)
        assert answer.status == 503
        assert {got.method for got in kept.got} == {"GET"}
        assert len(kept.got) > 1
        # What it names is known to this provider alone: no other one is asked.
        assert gateway.openai.requests == 0
        kept.got.clear()
        answer = await gateway.http.delete("/v1/files/x", headers=ROUTE)
        assert (answer.status, len(kept.got)) == (503, 1)


@pytest.mark.parametrize(
    "stored",
    [
        b'{"id": "batch-1", "status": "failed", "errors": {"data": [{"code": "invalid_file"}]}}',
        b'{"custom_id": "a", "response": null, "error": {"code": "batch_expired"}}\n',
        b'{"custom_id": "a"}\n{"custom_id": "b"}\n',
        b"<html>the caller's own page</html>",
        b"",
    ],
    ids=["a failed batch", "its file of errors", "lines", "a page", "an empty file"],
)
async def test_what_a_stored_thing_says_is_not_the_providers_failure(
    tmp_path: Path, stored: bytes
) -> None:
    """Whoever polled a failed batch would get a 502, and open the circuit for everybody."""
    async with store(tmp_path) as (gateway, kept):
        kept.answer = stored
        answer = await gateway.http.get("/v1/batches/batch-1", headers=ROUTE)
        assert (answer.status, await answer.read(), len(kept.got)) == (200, stored, 1)
        (attempt,) = gateway.attempts()
        assert (attempt.verdict, attempt.counts_against_breaker) == ("success", False)
        assert (attempt.billing, attempt.served) == ("not_billed", True)


async def test_a_form_is_routed_by_its_model_which_is_put_in_the_targets_words(
    tmp_path: Path,
) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.answer = b'{"text": "oak", "usage": {"input_tokens": 14, "output_tokens": 2}}'
        answer = await gateway.http.post("/v1/audio/transcriptions", data=form("files"))
        assert (answer.status, (await answer.json())["text"]) == (200, "oak")
        (got,) = kept.got
        assert got.headers["content-type"].startswith("multipart/form-data; boundary=")
        boundary = got.headers["content-type"].partition("boundary=")[2]
        assert int(got.headers["content-length"]) == got.size
        found = form_model(f"multipart/form-data; boundary={boundary}", got.body)
        assert found is not None
        assert found[0] == "whisper-1"
        assert got.body.count(b"R" * 20_000) == 1
        assert got.body.endswith(f"--{boundary}--\r\n".encode())
        (attempt,) = gateway.attempts()
        assert attempt.tokens is not None
        assert (attempt.tokens.input, attempt.tokens.output) == (14, 2)


async def test_an_answer_that_does_not_say_what_it_used_is_not_guessed_at(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.answer = b'{"text": "oak"}'
        await gateway.http.post("/v1/audio/transcriptions", data=form("files"))
        (attempt,) = gateway.attempts()
        assert (attempt.billing, attempt.tokens, attempt.served) == ("unknown", None, True)


async def test_a_form_that_never_left_goes_on_to_the_next_target_in_its_words(
    tmp_path: Path,
) -> None:
    async with store(tmp_path) as (gateway, kept):
        answer = await gateway.http.post("/v1/audio/transcriptions", data=form("moved"))
        assert answer.status == 200
        (got,) = kept.got
        assert b'name="model"\r\n\r\nwhisper-2\r\n' in got.body


async def test_a_form_that_failed_is_not_sent_twice(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.status = 500
        answer = await gateway.http.post("/v1/audio/transcriptions", data=form("files"))
        assert (answer.status, len(kept.got), gateway.openai.requests) == (500, 1, 0)
        assert answer.headers["x-should-retry"] == "false"


async def flood(total: int) -> AsyncIterator[bytes]:
    for _ in range(total // MIB):
        yield b"\xfe" * MIB


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_large_body_is_passed_on_in_constant_memory(tmp_path: Path, chunked: bool) -> None:
    total = 96 * MIB
    async with store(tmp_path) as (gateway, kept):
        headers = ROUTE | {"content-type": "application/octet-stream"}
        if not chunked:
            headers["content-length"] = str(total)
        tracemalloc.start()
        try:
            post = gateway.http.post("/v1/uploads/u1/parts", data=flood(total), headers=headers)
            answer = await post
            assert answer.status == 200, await answer.text()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        (got,) = kept.got
        assert got.sha256 == hashlib.sha256(b"\xfe" * total).hexdigest()
        assert ("transfer-encoding" in got.headers) is chunked
        # Caller, gateway and provider are all in this process: far below one copy of the body.
        assert peak < 32 * MIB


async def test_a_large_body_is_never_sent_twice(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.status = 503
        headers = ROUTE | {"content-type": "application/octet-stream"}
        answer = await gateway.http.post("/v1/files", data=flood(12 * MIB), headers=headers)
        assert (answer.status, len(kept.got)) == (503, 1)


async def test_a_provider_that_answers_early_is_heard(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.early = True
        headers = ROUTE | {"content-type": "application/octet-stream"}
        post = gateway.http.post("/v1/files", data=flood(64 * MIB), headers=headers)
        answer = await post
        assert (answer.status, len(kept.got)) == (413, 1)


async def test_a_large_answer_is_passed_on_piece_by_piece(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.answer, kept.pieces = b"\xfd" * MIB, 96
        tracemalloc.start()
        try:
            answer = await gateway.http.get("/v1/files/f/content", headers=ROUTE)
            digest = hashlib.sha256()
            async for piece in answer.content.iter_any():
                digest.update(piece)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert digest.hexdigest() == hashlib.sha256(kept.answer * 96).hexdigest()
        assert answer.headers["content-type"] == "application/octet-stream"
        assert peak < 32 * MIB
        await until(gateway.outcomes)
        assert [one.success for one in gateway.outcomes()] == [True]


async def test_events_that_are_not_read_go_on_as_they_come(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.events = asyncio.Event()
        body = {"stream": True, "assistant_id": "a"}
        answer = await gateway.http.post("/v1/threads/runs", json=body, headers=ROUTE)
        assert await answer.content.readany() == b"data: 1\n\n"
        kept.events.set()
        assert await answer.content.read() == b"data: 2\n\n"
        assert answer.headers["content-type"] == "text/event-stream"


async def test_an_answer_that_is_cut_breaks_off_without_words_of_ours(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        kept.answer, kept.pieces, kept.cut_after = b"\xfd" * MIB, 8, 3
        answer = await gateway.http.get("/v1/files/f/content", headers=ROUTE)
        assert set(await until_broken(answer)) == {0xFD}
        (attempt,) = gateway.attempts()
        assert attempt.verdict == "partial"


async def test_which_route_has_to_be_said_when_nothing_says_it(tmp_path: Path) -> None:
    async with store(tmp_path) as (gateway, kept):
        for answer in (
            await gateway.http.get("/v1/files"),
            await gateway.http.post("/v1/files", data=b"--x--", headers=NO_MODEL),
        ):
            assert answer.status == 400
            error = (await answer.json())["error"]
            assert error["param"] == "x-switchgear-route"
        answer = await gateway.http.get("/v1/files", headers={"x-switchgear-route": "none such"})
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "model_not_found")
        answer = await gateway.http.post("/v1/audio/transcriptions", data=form("none such"))
        assert answer.status == 404
        for path in ("/v1/a//b", "/v1/a b", "/v1/a%23b", "/v2/a", "/v1/"):
            assert (await gateway.http.get(path, headers=ROUTE)).status == 404, path
        assert kept.got == []


@pytest.mark.parametrize(
    "path", ["/v1/..", "/v1/a/../b", "/v1/./a", "/v1/a/", "/v1/a?b", "/v1/%2e"]
)
def test_no_path_leaves_the_providers_base(path: str) -> None:
    # A client's library makes such a path short before it is sent; somebody else does not.
    assert passing._path(path) is None


X = "multipart/form-data; boundary=x"
NAMED = b"Content-Disposition: form-data; name="


@pytest.mark.parametrize(
    ("content_type", "head", "model"),
    [
        (X, b"--x\r\n" + NAMED + b'"model"\r\n\r\nm\r\n--x--', "m"),
        (X, b"--x\r\nX-A: b\r\n" + NAMED + b"model\r\nX-C: d\r\n\r\nm\r\n--x--", "m"),
        (X.title() + " ", b"--X\r\n" + NAMED.lower() + b"model\r\n\r\nm\r\n--X--", "m"),
        (X, b"--x\r\n" + NAMED + b'"file"\r\n\r\n' + NAMED + b'"model"\r\n\r\nm\r\n--x--', None),
        (X, b"--x\r\n" + NAMED + b'"models"\r\n\r\nm\r\n--x--', None),
        (X, b"--x\r\n" + NAMED + b'"model"\r\n\r\nm', None),
        (X, b"--x\r\n" + b"a\r\n" * 200_000, None),
        (X, b"--x\r\n" * 200_000, None),
        ("multipart/form-data", b"--x", None),
        ("application/json", b"{}", None),
    ],
)  # fmt: skip
def test_the_model_of_a_form(content_type: str, head: bytes, model: str | None) -> None:
    found = form_model(content_type, head)
    assert (found and found[0]) == model
    if found is not None:
        start, end = found[1]
        assert head[start:end] == b"m"


@pytest.mark.parametrize("length", [b"content-length: 50000000", b"transfer-encoding: chunked"])
async def test_a_caller_that_leaves_in_the_middle_is_not_the_providers_fault(
    tmp_path: Path, length: bytes
) -> None:
    async with store(tmp_path) as (gateway, kept):
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        piece = b"%x\r\n%b\r\n" % (2 * MIB, b"a" * 2 * MIB) if b"chunked" in length else b"a" * MIB
        writer.write(b"POST /v1/files HTTP/1.1\r\nhost: x\r\nx-switchgear-route: files\r\n")
        writer.write(length + b"\r\n\r\n" + piece * 3)
        await writer.drain()
        await until(lambda: kept.got)
        writer.close()
        await until(gateway.attempts)
        (attempt,) = gateway.attempts()
        assert (attempt.verdict, attempt.counts_against_breaker) == ("client_cancelled", False)
        (outcome,) = gateway.outcomes()
        assert outcome.success is False
