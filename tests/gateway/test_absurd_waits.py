"""A server that names a wait of years: no circuit, no event and no report is lost to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config import ControlPlane
from gateway.contact import LONGEST_WAIT_SECONDS, Contact
from tests.gateway.running import running
from tests.gateway.test_upstream import RawProvider

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999999999999\r\n"
    b"content-length: 0\r\n\r\n"
)
MORE = """
[[providers]]
name = "odd"
base_url = "{url}"
keys = [{{ name = "main", secret = "one" }}]
[[routes]]
name = "odd"
targets = [{{ provider = "odd", model = "m" }}]
"""


async def test_a_wait_of_years_opens_the_circuit_for_no_longer_than_any_failure(
    tmp_path: Path,
) -> None:
    provider = RawProvider([BUSY] * 50)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with running(tmp_path, more=MORE.format(url=url)) as gateway:
            answers = [await gateway.chat("odd") for _ in range(8)]
            assert {answer.status for answer in answers} == {503}
            refused = await gateway.chat("odd")
    finally:
        server.close()
    assert int(refused.headers["retry-after"]) <= 60
    assert len(gateway.attempts()) == len(provider.bodies)
    assert refused.headers["x-switchgear-decision"] == "refused"


@pytest.mark.parametrize("text", ["99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_wait_of_years_does_not_silence_the_gateway(text: str) -> None:
    busy = BUSY.replace(b"99999999999999999999", text.encode())
    provider = RawProvider([busy])
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with Contact(ControlPlane(url, "token"), "edge") as contact:
            answer = await contact.send_events(b"x", gzipped=False)
    finally:
        server.close()
    assert (answer.status, answer.retry_after_s) == (503, LONGEST_WAIT_SECONDS)


async def test_a_wait_that_is_passed_on_stands_once_in_the_answer(tmp_path: Path) -> None:
    provider = RawProvider([BUSY.replace(b"99999999999999999999", b"6.5")] * 5)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with running(tmp_path, more=MORE.format(url=url)) as gateway:
            answer = await gateway.chat("odd", headers={"x-switchgear-timeout": "5"})
    finally:
        server.close()
    assert (answer.status, answer.headers.getall("retry-after")) == (503, ["7"])
