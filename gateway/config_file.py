"""From ``gateway.toml`` to a checked ``Config``.

Invariant: what comes back can be served as it is; whatever cannot is a ``ConfigError`` that names
the key and what would be right, before a port is bound.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from controlplane.domain.circuit import Circuit
from controlplane.domain.limits import RatePolicy
from gateway.config import (
    Caller,
    Config,
    ControlPlane,
    Key,
    Limits,
    Listener,
    Provider,
    Record,
    Route,
    Target,
)
from gateway.table import ConfigError, Table
from gateway.trust import Untrusted, authorities, missing_store

__all__ = ["ConfigError", "load", "parse"]

_TOKEN = re.compile(r"[!-~]+")
N = TypeVar("N", Provider, Route)


def load(path: Path | str, env: Mapping[str, str] | None = None) -> Config:
    """Read and check a file. Raises ``ConfigError`` that names the key and what would be right."""
    return parse(read_text(path), os.environ if env is None else env)


def read_text(path: Path | str) -> str:
    """The file's text. Raises ``ConfigError``."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error


def parse(text: str, env: Mapping[str, str]) -> Config:
    """Check a file's text; errors as in ``load``."""
    try:
        top = Table(tomllib.loads(text), "", env)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from error
    providers = _unique("providers", tuple(_provider(item) for item in top.tables("providers")))
    routes = _unique("routes", tuple(_route(item) for item in top.tables("routes")))
    callers = tuple(_caller(item) for item in top.tables("callers"))
    config = Config(
        gateway=_listener(top.table("gateway"), bool(callers)),
        control_plane=_control_plane(top.table("control_plane")),
        callers=callers,
        limits=_limits(top.table("limits")),
        providers=providers,
        routes=routes,
    )
    return _consistent(top.done(config))


def _listener(table: Table, has_callers: bool) -> Listener:
    return table.done(
        Listener(
            name=table.text("name"),
            host=table.text("host", "127.0.0.1"),
            port=table.whole("port", 8800, least=0, most=65_535),
            workers=table.whole("workers", 1, least=1, most=64),
            data_dir=Path(table.text("data_dir", "var/gateway", longest=4000)),
            drain_seconds=table.seconds("drain_seconds", 10.0, most=600),
            require_key=table.flag("require_key", has_callers),
        )
    )


def _control_plane(table: Table) -> ControlPlane | None:
    url = table.text("url", "", longest=2000).rstrip("/")
    token = _secret(table, "token")
    if not url:
        table.text("ca_file", "", longest=4000)
        return table.done(None)
    _http_url(table, "url", url)
    if not token:
        raise table.error("token", "is required beside url (or token_env)")
    return table.done(ControlPlane(url, token, _ca(table, "url", url)))


def _limits(table: Table) -> Limits:
    limits = Limits(
        in_flight=table.whole("in_flight", 256, least=1, most=100_000),
        reserved=table.whole("reserved", 16, least=0, most=100_000),
        body_bytes=table.whole("body_bytes", 32 * 2**20, least=1024, most=2**30),
        body_seconds=table.seconds("body_seconds", 30.0),
        repeatable_bytes=table.whole("repeatable_bytes", 8 * 2**20, least=0, most=2**30),
    )
    return table.done(limits)


def _caller(table: Table) -> Caller:
    digest = table.text("key_sha256").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise table.error("key_sha256", "expected the key's SHA-256, 64 hex digits")
    return table.done(Caller(digest, table.text("tenant"), table.flag("trusted", False)))


def _provider(table: Table) -> Provider:
    name = table.text("name")
    if "/" in name:
        raise table.error("name", "must not contain '/': it ends a provider's name in a circuit")
    base_url = table.text("base_url", longest=2000).rstrip("/")
    _http_url(table, "base_url", base_url)
    keys = tuple(
        item.done(Key(item.text("name"), _secret(item, "secret", required=True), _rate(item)))
        for item in table.tables("keys")
    )
    if len({key.name for key in keys}) < len(keys):
        raise table.error("keys", "two keys have the same name")
    style = table.one_of("style", ("openai",), "openai")
    connections = table.whole("connections", 128, least=1, most=10_000)
    return table.done(
        Provider(
            name,
            base_url,
            style,
            keys,
            connections,
            ask_usage=table.flag("ask_usage", True),
            max_concurrent=table.maybe_whole("max_concurrent", most=1_000_000),
            connect_seconds=table.seconds("connect_seconds", 5.0),
            ca=_ca(table, "base_url", base_url),
        )
    )


def _route(table: Table) -> Route:
    targets = tuple(_target(item) for item in table.tables("targets"))
    if not targets:
        raise table.error("targets", "at least one [[routes.targets]] is required")
    if len({target.circuit for target in targets}) < len(targets):
        raise table.error("targets", "the same target stands twice")
    return table.done(
        Route(
            name=table.text("name"),
            targets=targets,
            deadline_seconds=table.seconds("deadline_seconds", 60.0),
            attempt_seconds=table.seconds("attempt_seconds", 30.0),
            first_byte_seconds=table.seconds("first_byte_seconds", 20.0),
            idle_seconds=table.seconds("idle_seconds", 20.0),
            last_good=table.flag("last_good", False),
        )
    )


def _target(table: Table) -> Target:
    circuit = Circuit(table.text("provider"), table.text("model"), table.text("region", ""))
    return table.done(
        Target(
            circuit=circuit,
            approved=table.flag("approved", True),
            approved_until=table.moment("approved_until"),
            record=Record(
                approved_by=table.text("approved_by", ""),
                approved_at=table.moment("approved_at"),
                features=table.texts("features"),
                processing_regions=table.texts("processing_regions"),
                transfer_mechanism=table.text("transfer_mechanism", ""),
                retention_days=table.maybe_whole("retention_days", most=36_500),
            ),
            rate=_rate(table),
        )
    )


def _rate(table: Table) -> RatePolicy:
    return RatePolicy(
        requests_per_minute=table.maybe_whole("requests_per_minute", most=10_000_000),
        tokens_per_minute=table.maybe_whole("tokens_per_minute", most=10_000_000_000),
    )


def _secret(table: Table, key: str, *, required: bool = False) -> str:
    """``key`` itself, or the environment variable that ``key_env`` names; never both."""
    named = table.text(f"{key}_env", "")
    if named and table.has(key):
        raise table.error(key, f"give {key} or {key}_env, not both")
    if named:
        value = table.variable(named)
        if not value:
            raise table.error(f"{key}_env", f"the environment has no {named}")
    else:
        value = table.text(key, "", longest=8000)
    if required and not value:
        raise table.error(key, f"is required (or {key}_env)")
    if value and not _TOKEN.fullmatch(value):
        raise table.error(key, "must be printable ASCII without spaces")
    return value


def _http_url(table: Table, key: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise table.error(key, f"expected http://host[:port][/path] or https, got {url!r}")
    if parts.query or parts.fragment or parts.username:
        raise table.error(key, "must have no query, fragment or user name")


def _ca(table: Table, key: str, url: str) -> str:
    """The text of ``ca_file``. Without one an https ``url`` needs the host's own certificates."""
    path = table.text("ca_file", "", longest=4000)
    secure = urlsplit(url).scheme == "https"
    if path and not secure:
        raise table.error("ca_file", f"is for https, and {key} is {url!r}")
    try:
        text = authorities(Path(path)) if path else ""
    except Untrusted as error:
        raise table.error("ca_file", f"{path}: {error}") from error
    if secure and not path and (lack := missing_store(table.variable)):
        raise table.error(key, f"{url!r} cannot be checked: {lack}; or name its CA in ca_file")
    return text


def _unique(what: str, items: tuple[N, ...]) -> tuple[N, ...]:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise ConfigError(f"{what}: the name {item.name!r} stands twice")
        seen.add(item.name)
    return items


def _consistent(config: Config) -> Config:
    if not config.providers:
        raise ConfigError("providers: at least one [[providers]] is required")
    known = {provider.name for provider in config.providers}
    for route in config.routes:
        for target in route.targets:
            if target.circuit.provider not in known:
                raise ConfigError(
                    f"routes: {route.name!r} names the provider {target.circuit.provider!r}, "
                    f"known are {', '.join(sorted(known))}"
                )
    if config.limits.reserved >= config.limits.in_flight:
        raise ConfigError("limits.reserved: must be below limits.in_flight")
    if config.gateway.require_key and not config.callers:
        raise ConfigError("gateway.require_key: there are no [[callers]] whose key could be known")
    if not config.gateway.require_key and not _loopback(config.gateway.host):
        raise ConfigError(
            f"gateway.host: {config.gateway.host} is reachable from other machines; "
            "add [[callers]] and require their keys, or listen on 127.0.0.1"
        )
    return config


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
