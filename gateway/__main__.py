"""``python -m gateway --config gateway.toml [--workers N] [--check]``: serve, or only check."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from gateway.config import Config
from gateway.config_file import ConfigError, parse, read_text
from gateway.loop import run
from gateway.worker import serve
from gateway.workers import CannotBind, bind, supervise


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when stopped by a signal, 1 when the port is taken, 2 for a bad file."""
    options = _options(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if options.worker is not None:
        return _work(options.worker, options.fd, options.bytes)
    try:
        text = read_text(options.config)
    except ConfigError as error:
        print(f"gateway: {error}; name it with --config", file=sys.stderr)
        return 2
    try:
        config = parse(text, os.environ)
    except ConfigError as error:
        print(f"gateway: {options.config}: {error}", file=sys.stderr)
        return 2
    count = options.workers or config.gateway.workers
    if options.check:
        print(f"gateway {config.gateway.name}: {options.config} is good: {_summary(config)}")
        return 0
    try:
        listener = bind(config)
    except CannotBind as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    host, port = listener.getsockname()[:2]
    serving = "1 worker" if count == 1 else f"{count} workers"
    print(f"gateway {config.gateway.name}: http://{host}:{port}, {serving}", flush=True)
    run(supervise(config, text, listener, count))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gateway", description="Serve as gateway.toml says, or only check it."
    )
    default = Path("gateway.toml")
    parser.add_argument("--config", type=Path, default=default, help="the file (gateway.toml)")
    parser.add_argument(
        "--workers",
        type=int,
        choices=range(1, 65),
        metavar="N",
        help="serving processes, instead of the file's gateway.workers",
    )
    parser.add_argument("--check", action="store_true", help="check the file and stop")
    # How the parent starts its workers.
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _summary(config: Config) -> str:
    told = "without a control plane" if config.control_plane is None else "with a control plane"
    return f"providers: {len(config.providers)}, routes: {len(config.routes)}, {told}"


def _work(index: int, descriptor: int, size: int) -> int:
    """Serve as worker ``index`` on an inherited socket, configured through standard input."""
    # A Ctrl-C in the terminal reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = sys.stdin.buffer.read(size).decode()
    config = parse(text, os.environ)
    listener = socket.socket(fileno=descriptor)

    async def until_told() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)

        def parent_is_gone() -> None:
            # The pipe is never written again: readable means that its other end is closed.
            loop.remove_reader(0)
            stop.set()

        loop.add_reader(0, parent_is_gone)
        await serve(config, listener, index, stop)

    run(until_told())
    return 0


if __name__ == "__main__":
    sys.exit(main())
