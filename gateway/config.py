"""What one gateway is told by its own file: listener, callers, providers, built-in routes.

Invariant: a ``Config`` is whole and checked (by ``config_file.load``); nothing later looks at the
file, at the environment or for a missing value. Durations are seconds. No ``repr`` shows a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from controlplane.domain.circuit import Circuit
from controlplane.domain.limits import RatePolicy

UNLIMITED = RatePolicy()


@dataclass(frozen=True, slots=True)
class Listener:
    """Where and as whom this gateway serves. ``workers`` processes share the port.

    Without ``require_key`` a caller with an unknown key or none is the tenant ``default``.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8800
    workers: int = 1
    data_dir: Path = Path("var/gateway")
    drain_seconds: float = 10.0
    require_key: bool = False


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The control plane's address and this gateway's token.

    ``ca``: certificates of authorities that are trusted beside the host's, as PEM text.
    """

    url: str
    token: str = field(repr=False)
    ca: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one worker. ``reserved`` of ``in_flight`` are for high-priority requests alone.

    ``body_seconds``: how long a caller may take to send its body. A body above
    ``repeatable_bytes`` is not sent a second time once a byte of it may have arrived.
    """

    in_flight: int = 256
    reserved: int = 16
    body_bytes: int = 32 * 2**20
    body_seconds: float = 30.0
    repeatable_bytes: int = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller's key, known by its hash only. A trusted one may name other tenants."""

    key_sha256: str
    tenant: str
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One credential of a provider; ``name`` is the label in events, the secret never leaves.

    ``rate``: what the provider lets this key do, as a limit of the whole gateway.
    """

    name: str
    secret: str = field(repr=False)
    rate: RatePolicy = UNLIMITED


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider's endpoint. ``connections`` bounds this worker's calls to it at one time.

    ``max_concurrent`` bounds the whole gateway's; each live instance has its share. A part of both
    is kept for probes of a half-open breaker.
    ``connect_seconds`` bounds name, connection and handshake together, within the attempt's time.
    ``ask_usage``: its streams tell their usage when asked; switch it off for a server that takes
    ``stream_options`` for an error.
    ``ca``: certificates of authorities that are trusted beside the host's, as PEM text.
    """

    name: str
    base_url: str
    style: str = "openai"
    keys: tuple[Key, ...] = ()
    connections: int = 128
    ask_usage: bool = True
    max_concurrent: int | None = None
    connect_seconds: float = 5.0
    ca: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Record:
    """What is on record about an approval (design 4.4): by whom, when, and on what grounds.

    ``features`` are those that ``python -m gateway.check_fallback`` saw work; regions, mechanism
    and days are the provider's word, which a person has read.
    """

    approved_by: str = ""
    approved_at: datetime | None = None
    features: tuple[str, ...] = ()
    processing_regions: tuple[str, ...] = ()
    transfer_mechanism: str = ""
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One circuit that a route may use. Not approved, or past ``approved_until``: never used.

    ``rate`` is of the circuit: where two routes of the file limit the same one, the lower counts.
    """

    circuit: Circuit
    approved: bool = True
    approved_until: datetime | None = None
    record: Record = Record()
    rate: RatePolicy = UNLIMITED


@dataclass(frozen=True, slots=True)
class Route:
    """A model name that callers use, and its targets in order.

    ``deadline_seconds`` covers the whole request. ``attempt_seconds`` bounds one attempt up to its
    answer (of a stream: its first output, which ``first_byte_seconds`` may bound more tightly);
    ``idle_seconds`` bounds the silence inside a stream. ``last_good``: while every target is
    refused, the last good answer to the very same request is given again, marked.
    """

    name: str
    targets: tuple[Target, ...]
    deadline_seconds: float = 60.0
    attempt_seconds: float = 30.0
    first_byte_seconds: float = 20.0
    idle_seconds: float = 20.0
    last_good: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file. Without ``control_plane`` the gateway runs on its own."""

    gateway: Listener
    providers: tuple[Provider, ...]
    routes: tuple[Route, ...]
    control_plane: ControlPlane | None = None
    callers: tuple[Caller, ...] = ()
    limits: Limits = Limits()

    def provider(self, name: str) -> Provider | None:
        """The provider of that name, None when the file does not know it."""
        return next((item for item in self.providers if item.name == name), None)
