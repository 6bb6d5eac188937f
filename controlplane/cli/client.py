"""Talking to the control plane: where it is, who we are, and what went wrong.

Invariants: the token goes in a header, over https or to the machine itself, and never to another
host by a redirect; a write carries an Idempotency-Key, so trying it again is safe; each kind of
failure has one exit status.
"""

from __future__ import annotations

import json
import os
import ssl
import stat
import time
import tomllib
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_S = 15.0
TRIES = 3
LONGEST_BYTES = 64 * 2**20

OK, DIFFERS, USAGE, NOT_FOUND, REFUSED, CONFLICT, FORBIDDEN, UNAVAILABLE = range(8)
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes for a certificate whose issuer is not in this machine's store (x509_vfy.h)."""
_STATUS = {401: FORBIDDEN, 403: FORBIDDEN, 404: NOT_FOUND, 409: CONFLICT}


class Failed(Exception):
    """Something went wrong; ``exit_status`` is for scripts, ``problem`` what the server said."""

    def __init__(
        self, message: str, exit_status: int, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.problem = dict(problem or {})


@dataclass(frozen=True, slots=True)
class Settings:
    """The control plane's address and a service token."""

    url: str
    token: str

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """From ``SWITCHGEAR_URL`` and ``SWITCHGEAR_TOKEN``, then the config file."""
        url, token = environ.get("SWITCHGEAR_URL", ""), environ.get("SWITCHGEAR_TOKEN", "")
        if not (url and token):
            held = _config_file(environ)
            url, token = url or str(held.get("url", "")), token or str(held.get("token", ""))
        if not url or not token:
            raise Failed(
                "set SWITCHGEAR_URL and SWITCHGEAR_TOKEN, or write url and token into"
                f" {config_path(environ)}",
                USAGE,
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failed(f"SWITCHGEAR_URL: {url!r} is not an http address", USAGE)
        return cls(url.rstrip("/"), token.strip())


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the config file is looked for."""
    if named := environ.get("SWITCHGEAR_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")) / ".config")
    return Path(home).expanduser() / "switchgear" / "config.toml"


def _config_file(environ: Mapping[str, str]) -> dict[str, Any]:
    path = config_path(environ)
    try:
        if "token" in (held := tomllib.loads(path.read_text(encoding="utf-8"))):
            mode = path.stat().st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Failed(f"{path} holds a token: chmod 600 it", USAGE)
        return held
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}", USAGE) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: {error}", USAGE) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Requests as one service token."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirect())

    def get(self, path: str, **query: Any) -> Any:
        """The decoded answer."""
        return self._json("GET", path, None, query)

    def text(self, path: str, **query: Any) -> str:
        """The answer as text."""
        return self._ask("GET", path, None, query).decode("utf-8", "replace")

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """A write that is done once, however often it has to be sent."""
        return self._json("POST", path, body or {}, query)

    def delete(self, path: str, version: str, **query: Any) -> None:
        """Take away what is at this version."""
        self._ask("DELETE", path, None, query, {"If-Match": version})

    def remove(self, path: str) -> None:
        """Take away what has no version."""
        self._ask("DELETE", path, None, {})

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any]
    ) -> Any:
        answer = self._ask(method, path, body, query)
        return json.loads(answer) if answer else None

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        asked = {k: v for k, v in query.items() if v not in (None, "", False)}
        asked = {k: "1" if v is True else v for k, v in asked.items()}
        url = f"{self._settings.url}/api/v1{path}" + (f"?{urlencode(asked)}" if asked else "")
        told = {"Authorization": f"Bearer {self._settings.token}", **(headers or {})}
        data = None
        if method != "GET":
            told |= {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
            data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data, told, method=method)
        for attempt in range(1, TRIES + 1):
            try:
                with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                    return bytes(answer.read(LONGEST_BYTES))
            except urllib.error.HTTPError as error:
                if error.code == 503 and attempt < TRIES:
                    time.sleep(_wait(error.headers.get("Retry-After")))
                    continue
                raise _failed(error.code, error.read(LONGEST_BYTES)) from error
            except (OSError, ValueError) as error:
                if isinstance(error, urllib.error.URLError):
                    _check_certificate(self._settings.url, error.reason)
                if attempt == TRIES:
                    reason = getattr(error, "reason", error)
                    said = f"{self._settings.url} does not answer: {reason}"
                    raise Failed(said, UNAVAILABLE) from error
                time.sleep(0.2 * attempt)
        raise AssertionError("the last try returns or raises")


def _check_certificate(url: str, reason: object) -> None:
    """Raises ``Failed`` when the server's certificate is the trouble: no retry makes it better."""
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return
    why = reason.verify_message or str(reason)
    if reason.verify_code not in _UNKNOWN_AUTHORITY:
        raise Failed(f"the certificate of {url} is not good: {why}", UNAVAILABLE)
    named = ssl.get_default_verify_paths().openssl_cafile_env
    file = environment().get(named)
    if file and not Path(file).is_file():
        why += f" ({named} names {file}, which is not there)"
    raise Failed(
        f"the certificate of {url} is not trusted: {why}; set {named} to a file with the"
        " certificate of its authority",
        UNAVAILABLE,
    )


def _wait(header: str | None) -> float:
    return min(5.0, float(header)) if header and header.isdigit() else 1.0


def _failed(status: int, body: bytes) -> Failed:
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    said = str(problem.get("detail") or f"the control plane answered {status}")
    for fault in problem.get("errors") or []:
        line = f"{fault.get('field')}: {fault.get('message')}"
        if line not in said:
            said += f"\n  {line}"
    default = UNAVAILABLE if status >= 500 else REFUSED
    return Failed(said, _STATUS.get(status, default), problem)


def path_of(*parts: str) -> str:
    """``/kind/name`` with each part percent-encoded."""
    return "".join(f"/{quote(part, safe='@')}" for part in parts)


def environment() -> Mapping[str, str]:
    """The process's environment; read in one place."""
    return os.environ
