"""``manage.py bootstrap``: the first admin, gateway and tokens; their secrets in one 0600 file.

Invariant: idempotent, and no secret is printed. The file is written before the database commits:
secrets that the database does not have yet are put there by the next run.
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane import env
from controlplane.actions.bootstrap import Secrets, bootstrap
from controlplane.actions.gateways import new_token
from controlplane.errors import Problem

FILE = "credentials.json"


class Command(BaseCommand):
    """Reads SWITCHGEAR_VAR, _PORT, _GATEWAY_PORT, _URL, _ADMIN_*, _GATEWAY_NAME and DEMO."""

    help = "Make the first admin, gateway, tokens and defaults (idempotent)."

    def add_arguments(self, parser: CommandParser) -> None:
        """``--routes``: so that the control plane knows the fallbacks that a file approves."""
        parser.add_argument(
            "--routes",
            type=Path,
            metavar="GATEWAY.TOML",
            help="record the routes of this gateway file, when the first gateway is made",
        )

    def handle(self, *args: Any, routes: Path | None, **options: Any) -> None:
        """Read or mint the secrets, write the file, make what is missing in the database."""
        path = Path(settings.VAR_DIR) / FILE
        kept = _read(path)
        document = _mint() | kept | _addresses()
        _write(path, document)
        wanted = {name: document[name] for name in Secrets.__slots__}
        try:
            made = bootstrap(
                Secrets(**wanted),
                fresh=not kept,
                now=datetime.now(UTC),
                first_routes=_routes(routes) if routes else None,
            )
        except Problem as problem:
            raise CommandError(f"{routes}: {problem}") from problem
        for line in made:
            self.stdout.write(f"made {line}")


def _routes(path: Path) -> dict[str, dict[str, Any]]:
    """The routes of a gateway's file, as far as a Route object says the same."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("routes", [])
        return {
            route["name"]: {
                "deadline_seconds": route.get("deadline_seconds", 60),
                "attempt_seconds": route.get("attempt_seconds", 30),
                "targets": route["targets"],
            }
            for route in found
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path}: its routes cannot be read ({error!r})") from error


def _mint() -> dict[str, str]:
    return {
        "admin_user": env.text("SWITCHGEAR_ADMIN_USER", "admin"),
        "admin_password": env.text("SWITCHGEAR_ADMIN_PASSWORD", secrets.token_urlsafe(12)),
        "operator_token": new_token("sgs_"),
        "viewer_token": new_token("sgs_"),
        "gateway_name": env.text("SWITCHGEAR_GATEWAY_NAME", "demo"),
        "gateway_token": env.text("SWITCHGEAR_GATEWAY_TOKEN", new_token("sgg_")),
    }


def _addresses() -> dict[str, str | None]:
    gateway_port = env.number("SWITCHGEAR_GATEWAY_PORT", 8800, low=1, high=65535)
    demo = env.flag("DEMO", True)
    return {
        "url": env.text("SWITCHGEAR_URL", f"http://127.0.0.1:{settings.PORT}"),
        "gateway_url": f"http://127.0.0.1:{gateway_port}" if demo else None,
    }


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(found[name]) for name in Secrets.__slots__}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} cannot be used ({error!r}). Move it away and run this again: new credentials"
            " are made, the data stays."
        ) from error


def _write(path: Path, document: dict[str, str | None]) -> None:
    """Replace the file as a whole, readable by its owner alone from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
