"""``python -m gateway.simulator --scenario NAME --port P``: play simulated providers."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from gateway.loop import run
from gateway.simulator.scenario import SCENARIOS
from gateway.simulator.service import Simulator


async def _serve(scenario: str, host: str, port: int, seed: int) -> None:
    simulator = Simulator(SCENARIOS[scenario], seed, time.monotonic)
    url = await simulator.start(host, port)
    names = ", ".join(f"{url}/{name}/v1" for name in simulator.providers)
    print(f"simulator: scenario {scenario}: {names}", flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
    await simulator.close()


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. A port in use is one line and exit status 1."""
    parser = argparse.ArgumentParser(prog="python -m gateway.simulator", description=__doc__)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="brownout")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        run(_serve(options.scenario, options.host, options.port, options.seed))
    except OSError as error:
        print(f"simulator: port {options.port}: {error.strerror}; try --port", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
