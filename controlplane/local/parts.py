"""The parts of the product as commands: how each is started and when it counts as ready.

Invariant: every part is an ordinary program that could be started by hand with the same line and
the variables in `<var>/environment.json`; nothing is known here of what goes on inside it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

from .children import Child
from .environment import write_private
from .errors import LaunchError
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


def write_gateway_configuration(
    options: Options, credentials: Mapping[str, object], simulator_url: str
) -> None:
    """Fill the demo gateway's template (`gateway/demo.toml`) and write it, 0600, in `var`.

    The template may use `${GATEWAY_NAME}`, `${GATEWAY_TOKEN}`, `${GATEWAY_PORT}`,
    `${CONTROL_PLANE_URL}`, `${SIMULATOR_URL}` and `${SWITCHGEAR_VAR}`; `$$` is a dollar sign.
    """
    path = CHECKOUT / "gateway" / "demo.toml"
    known = {
        "GATEWAY_NAME": credentials.get("gateway_name"),
        "GATEWAY_TOKEN": credentials.get("gateway_token"),
        "GATEWAY_PORT": options.gateway_port,
        "CONTROL_PLANE_URL": options.url,
        "SIMULATOR_URL": simulator_url,
        "SWITCHGEAR_VAR": options.var,
    }
    try:
        text = Template(path.read_text(encoding="utf-8")).substitute(known)
    except FileNotFoundError:
        raise LaunchError(f"{path} is missing; start without the demo: make up DEMO=0") from None
    except (KeyError, ValueError) as error:
        raise LaunchError(f"{path}: unknown or odd placeholder: {error}") from None
    write_private(options.var / "gateway.toml", text)
