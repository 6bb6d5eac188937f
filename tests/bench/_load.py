"""``python -m tests.bench._load URL``: as many requests as N connections carry; one line of JSON.

Written on the bare protocol, because a client library would cost more than what is measured. Every
connection sends its next request when the last answer is whole. Anything but a 200 ends it with
exit status 1: a fast error is not a fast answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

from gateway.loop import run


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, request: bytes, ends_at: float) -> None:
        self._request = request
        self._ends_at = ends_at
        self._buffer = bytearray()
        self._sent = 0.0
        self.times: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._whole():
            return
        now = time.perf_counter()
        self.times.append(now - self._sent)
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self._finish(RuntimeError(self._buffer[:300].decode("latin-1")))
        elif now >= self._ends_at:
            self._finish(None)
        else:
            self._buffer.clear()
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def _whole(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        place = head.find(b"content-length:")
        if place < 0:
            return self._buffer.endswith(b"0\r\n\r\n")
        length = int(head[place + 15 :].split(b"\r\n", 1)[0])
        return len(self._buffer) >= end + 4 + length

    def _finish(self, error: Exception | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
        self._transport.close()


async def load(url: str, body: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Rate and times, after everything was whole."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        "content-type: application/json\r\nauthorization: Bearer bench\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    request, loop = head.encode() + body, asyncio.get_running_loop()
    began = time.perf_counter()
    made = [Connection(request, began + seconds) for _ in range(connections)]
    await asyncio.gather(
        *(loop.create_connection(lambda c=c: c, parts.hostname, parts.port) for c in made)
    )
    await asyncio.gather(*(connection.done for connection in made))
    elapsed = time.perf_counter() - began
    times = [taken for connection in made for taken in connection.times]
    cuts = quantiles(times, n=100, method="inclusive")
    return {
        "requests": len(times),
        "per_s": len(times) / elapsed,
        "p50_ms": cuts[49] * 1000,
        "p99_ms": cuts[98] * 1000,
    }


def main() -> int:
    """Read the options, the body from standard input, and send."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench._load")
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    body = sys.stdin.buffer.read()
    try:
        told = run(load(options.url, body, options.connections, options.seconds))
    except (OSError, RuntimeError) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
