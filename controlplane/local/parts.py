"""The parts of the product as commands: how each is started and when it counts as ready.

Invariant: every part is an ordinary program that could be started by hand with the same line and
the variables in `<var>/environment.json`; nothing is known here of what goes on inside it.
"""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from .children import Child
from .environment import write_private
from .errors import LaunchError, explain
from .logs import open_log
from .options import CHECKOUT, Options
from .probe import accepts, answers
from .spawn import spawn

_SCENARIO = "brownout"


def launcher(
    log: Path, chosen: Mapping[str, str], *args: str
) -> Callable[[], subprocess.Popen[bytes]]:
    """A function that starts `python args` in the checkout with the chosen variables."""

    def launch() -> subprocess.Popen[bytes]:
        with open_log(log) as output:
            return spawn(
                [sys.executable, *args],
                env={**os.environ, **chosen, "PYTHONUNBUFFERED": "1"},
                output=output,
                cwd=CHECKOUT,
                death_signal=signal.SIGTERM,
            )

    return launch


def _child(
    options: Options,
    chosen: Mapping[str, str],
    name: str,
    args: tuple[str, ...],
    ready: Callable[[], bool] = lambda: True,
) -> Child:
    log = options.logs / f"{name}.log"
    return Child(name, launcher(log, chosen, *args), log, ready)


def control_plane(options: Options, chosen: Mapping[str, str]) -> list[Child]:
    """Web server, Celery worker and beat, in the order of their start."""
    web = (
        *("-m", "uvicorn", "controlplane.asgi:application"),
        *("--host", options.host, "--port", str(options.port)),
        # Gateways report every 10 s: with uvicorn's 5 s each report would need a new connection.
        *("--timeout-keep-alive", "75"),
        # Without a limit uvicorn waits for open event streams for ever.
        *("--timeout-graceful-shutdown", "3", "--no-access-log", "--log-level", "warning"),
    )
    celery = ("-m", "celery", "-A", "workers")
    worker = (*celery, "worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "INFO")
    schedule = options.var / "run" / "celerybeat-schedule"
    beat = (*celery, "beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", "WARNING")
    serves = [f"{options.url}/healthz", f"{options.url}/readyz"]
    return [
        _child(options, chosen, "web", web, lambda: answers(*serves)),
        _child(options, chosen, "worker", worker),
        _child(options, chosen, "beat", beat),
    ]


def demo(options: Options, chosen: Mapping[str, str], simulator_port: int) -> list[Child]:
    """Provider simulator, the demo gateway and its traffic, in the order of their start."""
    simulator = ("-m", "gateway.simulator", "--scenario", _SCENARIO)
    configuration = str(options.var / "gateway.toml")
    gateway = ("-m", "gateway", "--config", configuration, "--workers", "2")
    traffic = ("-m", "gateway.traffic", "--gateway", options.gateway_url)
    serves = [f"{options.gateway_url}/healthz", f"{options.gateway_url}/readyz"]
    return [
        _child(
            options,
            chosen,
            "simulator",
            (*simulator, "--port", str(simulator_port)),
            lambda: accepts(simulator_port),
        ),
        _child(options, chosen, "gateway", gateway, lambda: answers(*serves)),
        _child(options, chosen, "traffic", traffic),
    ]


def keep_gateway_configuration(options: Options, say: Callable[[str], None]) -> None:
    """Put `gateway/demo.toml` at `<var>/gateway.toml`, unless somebody has edited that copy.

    The gateway itself fills the `${...}` in it from its environment: no token is written there.
    """
    source, copy = CHECKOUT / "gateway" / "demo.toml", options.var / "gateway.toml"
    stamp = options.var / "run" / "gateway.toml.stamp"
    try:
        wanted = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LaunchError(f"{source} is missing; start without the demo: make up DEMO=0") from None
    try:
        found = copy.read_text(encoding="utf-8") if copy.exists() else None
        written = stamp.read_text(encoding="ascii").strip() if stamp.exists() else None
        if found is not None and found != wanted and _digest(found) != written:
            say(f"{copy} was edited; it is used as it is")
        elif found != wanted:
            write_private(copy, wanted)
            stamp.write_text(_digest(wanted) + "\n", encoding="ascii")
    except OSError as error:
        raise explain(error, f"writing {copy}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def gateway_environment(
    options: Options, credentials: Mapping[str, str], simulator_url: str
) -> dict[str, str]:
    """The variables that the demo's parts need on top of those of the control plane."""
    return {
        "SWITCHGEAR_URL": options.url,
        "SWITCHGEAR_SIMULATOR_URL": simulator_url,
        "SWITCHGEAR_GATEWAY_NAME": credentials["gateway_name"],
        "SWITCHGEAR_GATEWAY_TOKEN": credentials["gateway_token"],
    }
