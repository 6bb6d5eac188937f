"""The tests of a fallback make real calls; its record is what the file can then say."""

import asyncio
import json
import sys
import time
import tomllib
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from controlplane.wire import desired
from gateway.config import Record
from gateway.config_file import parse
from gateway.routing import Routing
from gateway.simulator.scenario import MANUAL, Conditions, Fate
from gateway.simulator.service import Simulator
from tests.gateway import build
from tests.gateway.running import running

CONFIG = """
[gateway]
name = "edge"
[[providers]]
name = "mistral"
base_url = "{url}/mistral/v1"
keys = [{{ name = "main", secret = "one" }}, {{ name = "spare", secret = "two" }}]
[[routes]]
name = "assistant"
attempt_seconds = 5
[[routes.targets]]
provider = "mistral"
model = "mistral-small-latest"
approved = false
processing_regions = ["eu-west"]
transfer_mechanism = "none needed"
retention_days = 30
"""
ALL = ["auth", "tools", "json_schema", "streaming", "context_size_8000"]


@asynccontextmanager
async def simulated(tmp_path: Path, *fates: Fate) -> AsyncIterator[Path]:
    simulator = Simulator(MANUAL, 1, time.monotonic)
    for provider in simulator.providers.values():
        provider.conditions = Conditions(sigma=0.0, latency_ms=0.0, output_tokens=40)
        provider.fates.extend(fates)
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG.format(url=await simulator.start()))
    yield path
    await simulator.close()


async def check(path: Path, *options: str) -> tuple[int, str, str]:
    """Run the command as a process of its own."""
    command = ("-m", "gateway.check_fallback", "--config", str(path), *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_record_that_passed_can_stand_in_the_file(tmp_path: Path) -> None:
    async with simulated(tmp_path) as path:
        code, out, err = await check(path, "assistant", "--approved-by", "the platform team")
        assert (code, err) == (0, "")
        (target,) = tomllib.loads(out)["routes"]["targets"]
        assert target["features"] == ALL
        assert target["approved"] is True
        left = target["approved_until"] - datetime.now(UTC)
        assert timedelta(days=89) < left <= timedelta(days=90)
        text = path.read_text()
        whole = text[: text.index("[[routes.targets]]")] + out
        (read,) = parse(whole, {}).routes[0].targets
        assert read.approved
        assert read.record.features == tuple(ALL)
        assert read.record.approved_by == "the platform team"
        assert read.record.processing_regions == ("eu-west",)
        assert read.record.transfer_mechanism == "none needed"
        assert read.record.retention_days == 30


async def test_a_record_without_a_name_is_not_approved(tmp_path: Path) -> None:
    async with simulated(tmp_path) as path:
        code, out, _ = await check(path, "assistant", "--json", "--retention-days", "0")
        (target,) = json.loads(out)["targets"]
        assert code == 0
        assert target["features"] == ALL
        assert (target["approved"], target["approved_until"]) == (False, None)
        assert target["retention_days"] == 0


async def test_a_failed_test_is_not_in_the_record_and_nothing_is_approved(tmp_path: Path) -> None:
    # Two keys log in, then the tool call fails; the rest passes.
    async with simulated(tmp_path, Fate.OK, Fate.OK, Fate.SERVER_ERROR) as path:
        code, out, _ = await check(path, "assistant", "--json", "--approved-by", "someone")
        (target,) = json.loads(out)["targets"]
        assert code == 1
        assert target["features"] == [feature for feature in ALL if feature != "tools"]
        assert target["approved"] is False
        failed = [test for test in target["tests"] if not test["passed"]]
        assert failed[0]["detail"].startswith("status 500: ")


async def test_a_stream_that_breaks_off_fails(tmp_path: Path) -> None:
    async with simulated(tmp_path, *[Fate.OK] * 4, Fate.CUT) as path:
        code, out, _ = await check(path, "assistant", "--json")
        assert code == 1
        (target,) = json.loads(out)["targets"]
        assert "streaming" not in target["features"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "no route 'nothing'; known: assistant"),
        (("assistant", "--config", "missing.toml"), "missing.toml: No such file"),
    ],
)
async def test_what_cannot_be_tested_is_named(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    async with simulated(tmp_path) as path:
        code, _, err = await check(path, *arguments)
        assert code == 2
        assert said in err


async def plain(request: web.Request) -> web.Response:
    """A provider that answers everything with the same text and knows neither tool nor schema."""
    await request.read()
    message = {"role": "assistant", "content": "oak"}
    return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})


async def test_a_provider_that_ignores_what_it_does_not_know_does_not_pass(tmp_path: Path) -> None:
    app = web.Application()
    app.router.add_post("/mistral/v1/chat/completions", plain)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG.format(url=f"http://127.0.0.1:{port}"))
    code, out, _ = await check(path, "assistant", "--json", "--approved-by", "someone")
    await runner.cleanup()
    assert code == 1
    assert json.loads(out)["targets"][0]["features"] == ["auth", "context_size_8000"]


@pytest.mark.parametrize("approval", ["approved = false", "approved_until = 2026-01-01T00:00:00Z"])
async def test_a_target_whose_approval_does_not_stand_is_never_used(
    tmp_path: Path, approval: str
) -> None:
    more = (
        """
[[routes]]
name = "guarded"
[[routes.targets]]
provider = "mistral"
model = "mistral-small-latest"
"""
        + approval
    )
    async with running(tmp_path, more=more) as gateway:
        async with await gateway.chat("guarded") as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "policy"
        assert gateway.simulator.providers["mistral"].requests == 0
        assert [one.gate for one in gateway.refusals()] == ["policy"]


def test_the_record_travels_in_a_route_of_the_control_plane() -> None:
    target = desired.RouteTarget(
        provider="north",
        model="large",
        approved_by="the platform team",
        features=ALL,
        processing_regions=["eu-west"],
        transfer_mechanism="none needed",
        retention_days=0,
    )
    item = desired.RouteItem(uid="r", name="fast", generation=1, targets=[target])
    (read,) = Routing(build.config()).read(item).targets
    assert read.record == Record(
        approved_by="the platform team",
        features=tuple(ALL),
        processing_regions=("eu-west",),
        transfer_mechanism="none needed",
        retention_days=0,
    )
