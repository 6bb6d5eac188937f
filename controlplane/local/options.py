"""What `make up` was asked for, read once from the environment.

Invariant: an odd value stops the start with a line that names the variable.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import LaunchError

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Options:
    """Ports are TCP ports on `host`; `var` is the folder for everything that is kept."""

    var: Path
    host: str
    port: int
    gateway_port: int
    demo: bool
    database_url: str | None
    database_owner_url: str | None
    broker_url: str | None

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the dashboard."""
        return f"http://{self._reachable}:{self.port}"

    @property
    def gateway_url(self) -> str:
        """Where a program on this machine finds the demo gateway."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def _reachable(self) -> str:
        if self.host in ("0.0.0.0", "::", ""):
            return "127.0.0.1"
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def logs(self) -> Path:
        return self.var / "log"


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name) or str(default)
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 65535):
        raise LaunchError(f"{name}={value!r}: write a port from 1 to 65535")
    return int(value)


def read_options(environ: Mapping[str, str] = os.environ) -> Options:
    """The options, defaults filled in. Raises LaunchError for a value that cannot be."""
    demo = environ.get("DEMO") or "1"
    if demo not in ("0", "1"):
        raise LaunchError(f"DEMO={demo!r}: write 0 or 1")
    options = Options(
        var=Path(environ.get("SWITCHGEAR_VAR") or CHECKOUT / "var").absolute(),
        host=environ.get("SWITCHGEAR_HOST") or "127.0.0.1",
        port=_port(environ, "SWITCHGEAR_PORT", 8000),
        gateway_port=_port(environ, "SWITCHGEAR_GATEWAY_PORT", 8800),
        demo=demo == "1",
        database_url=environ.get("DATABASE_URL") or None,
        database_owner_url=environ.get("DATABASE_OWNER_URL") or None,
        broker_url=environ.get("BROKER_URL") or None,
    )
    if options.demo and options.port == options.gateway_port:
        raise LaunchError(
            f"SWITCHGEAR_PORT and SWITCHGEAR_GATEWAY_PORT are both {options.port}: change one"
        )
    return options
