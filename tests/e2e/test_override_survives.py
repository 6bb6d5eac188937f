"""Kill -9 of control plane, Postgres and gateway in every order, with an override in force.

In real time, with an override of seconds: whatever has died, no call reaches the provider before
the override's end, and every call that begins a second after it does. A gateway that comes back
holds it from its disk, with nobody there to tell it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.survival import PATIENCE_S, Call, Stand, stand, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

# "-" kills, "+" starts again. What is not started again stays dead until after the override's end.
ORDERS = [
    "web-",
    "gateway- gateway+",
    "web- gateway- gateway+",
    "gateway- web- gateway+",
    "web- web+",
    "web- gateway- web+ gateway+",
    "gateway- web- web+ gateway+",
    "postgres- postgres+",
    "postgres- gateway- gateway+",
]
LEAST_S, MOST_S = 10.0, 90.0


@contextmanager
def _folder() -> Iterator[Path]:
    """One that Postgres can enter, which runs as another user when we are root."""
    with tempfile.TemporaryDirectory(prefix="switchgear-survival-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def living() -> AsyncIterator[tuple[Stand, float]]:
    """The stand, and how long its gateway takes to come back on this machine as it is now."""
    with _folder() as folder:
        async with stand(folder) as made:
            await made.do("web+")
            # The first change compiles what a gateway is told.
            await until(lambda: made.ask("GET", "gateways"), "the control plane answers")
            name, _ = await made.force(3600)
            assert await made.ask("POST", f"overrides/{name}/release", {})
            await made.all_up()
            began = time.monotonic()
            await made.do("gateway-")
            await made.do("gateway+")
            await until(made.serves, "the gateway is back")
            yield made, time.monotonic() - began


@asynccontextmanager
async def calling(made: Stand) -> AsyncIterator[list[Call]]:
    """Calls through the gateway, one after the other."""
    calls: list[Call] = []

    async def run() -> None:
        while True:
            calls.append(await made.call())
            await asyncio.sleep(0.05)

    task = asyncio.create_task(run())
    try:
        yield calls
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("order", ORDERS)
async def test_it_holds_and_ends_on_time(living: tuple[Stand, float], order: str) -> None:
    made, comes_back_s = living
    await made.all_up()
    lasts = min(MOST_S, max(LEAST_S, 4 * comes_back_s + 4))
    name, ends = await made.force(lasts)

    async def forced() -> bool:
        return (await made.call()).said == "forced"

    await until(forced, "the override is enforced", ends - time.time())
    enforced = time.time()
    async with calling(made) as calls:
        for step in order.split():
            await made.do(step)
        done = time.time()
        while time.time() < ends + 3 or calls[-1].said != "served":
            assert time.time() < ends + 60, f"not served: {calls[-3:]}"
            await asyncio.sleep(0.1)
    held = [c for c in calls if c.begun > done and c.ended < ends and c.said == "forced"]
    assert held, f"nothing was seen between the last step and the end: {lasts} s are too short"
    early = [at for at in made.provider_calls if enforced < at < ends - CLOCK_S]
    assert early == [], f"the provider was called {ends - early[0]:.2f} s before the end"
    late = [c for c in calls if c.begun > ends + 1 and c.said not in ("served", "down")]
    assert late == [], f"still refused {late[-1].begun - ends:.2f} s after the end: {late[-1].said}"
    await made.all_up()

    async def told() -> bool:
        row = await made.ask("GET", f"overrides/{name}")
        return bool(row and row["status"]["phase"] == "Expired")

    await until(told, "the control plane knows that it ended")


async def test_the_wall_is_told_soon_that_postgres_has_gone_and_is_back(
    living: tuple[Stand, float],
) -> None:
    """Long before its data is 10 s old, which is when a page would find out by itself."""
    made, comes_back_s = living
    await made.all_up()
    headers = {"Cookie": await made.session(), "Origin": made.control}
    url = f"{made.control}/ws/wall"
    async with made.http.ws_connect(url, headers=headers, max_msg_size=2**24) as socket:

        async def next_ping(*, lost: bool) -> float:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = await socket.receive_json()
                    if frame["type"] == "ping" and frame["lost"] is lost:
                        return float(frame["age_s"])

        await next_ping(lost=False)
        await made.do("postgres-")
        age_s = await next_ping(lost=True)
        assert age_s < 5 + comes_back_s, f"it was said only when the data was {age_s:.1f} s old"
        await made.do("postgres+")
        await next_ping(lost=False)


# The end is a time of day that the API gives to the millisecond, and monotonic time in the gateway.
CLOCK_S = 0.05
