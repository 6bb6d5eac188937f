"""What looks at the wall beside the one browser: plain sockets, and a pipe that counts bytes.

Invariant: a viewer only receives; what it makes of a frame is the browser's to measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from websockets.asyncio.client import connect

from controlplane.local.ports import free_port

_PIECE = 2**16


@dataclass
class Counted:
    """Bytes that went through a pipe, both ways."""

    port: int
    total: int = 0


@dataclass
class Viewers:
    """Frames that each socket has got."""

    frames: list[int] = field(default_factory=list)


@contextmanager
def viewers(port: int, cookie: str, count: int) -> Iterator[Viewers]:
    """So many sockets of one logged-in person, all with their first frame."""
    seen = Viewers([0] * count)
    ready = threading.Barrier(2)

    async def one(number: int) -> None:
        url = f"ws://127.0.0.1:{port}/ws/wall"
        async with connect(
            url,
            additional_headers={"Cookie": cookie},
            origin=f"http://127.0.0.1:{port}",  # type: ignore[arg-type]
            max_size=2**24,
        ) as socket:
            async for _ in socket:
                seen.frames[number] += 1

    async def all_of_them(stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(one(number)) for number in range(count)]
        while not all(seen.frames):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)
        await asyncio.to_thread(ready.wait)
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with _in_a_thread(all_of_them):
        ready.wait(timeout=60)
        yield seen


@contextmanager
def counting(port: int) -> Iterator[Counted]:
    """A pipe to ``port`` that adds up what it carries."""
    pipe = Counted(free_port())
    ready = threading.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            pipe.total += len(piece)
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(
                carry(reader, inner_writer), carry(inner_reader, writer), return_exceptions=True
            )

    async def serve(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(accepted, "127.0.0.1", pipe.port)
        ready.set()
        await stop.wait()
        server.close()

    with _in_a_thread(serve):
        ready.wait(timeout=60)
        yield pipe


@contextmanager
def _in_a_thread(main) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """A loop of its own: Playwright's holds this thread's."""
    stopping: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        stopping.append((asyncio.get_running_loop(), stop))
        await main(stop)

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop, stop = stopping[0]
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=20)
