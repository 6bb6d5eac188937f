"""The environment of the running product: given to its children, and found again by `manage.py`.

Invariant: what the caller has set always wins; the kept copy (`<var>/environment.json`, 0600)
only fills gaps, so `manage.py` works beside `make up` without any setting.
"""

import json
import os
import secrets
import stat
from collections.abc import MutableMapping
from pathlib import Path

from .errors import LaunchError, explain
from .options import CHECKOUT, Options

_KEPT = "environment.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only we may read, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise explain(error, f"writing {path}") from error


def secret_key(var: Path) -> str:
    """Django's signing key: made at the first start, kept in `<var>/secret_key` (0600)."""
    path = var / "secret_key"
    try:
        kept = path.read_text(encoding="ascii").strip()
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    except OSError as error:
        raise explain(error, f"reading {path}") from error
    if len(kept) < 50:
        kept = secrets.token_urlsafe(48)
        write_private(path, kept + "\n")
    return kept


def environment(options: Options, database_url: str, broker_url: str) -> dict[str, str]:
    """The variables that every child gets on top of the caller's own."""
    chosen = {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": database_url,
        "DATABASE_OWNER_URL": "",
        "BROKER_URL": broker_url,
        "SWITCHGEAR_VAR": str(options.var),
        "SWITCHGEAR_HOST": options.host,
        "SWITCHGEAR_PORT": str(options.port),
        "SWITCHGEAR_GATEWAY_PORT": str(options.gateway_port),
        "DEMO": "1" if options.demo else "0",
        "SWITCHGEAR_SECRET_KEY": os.environ.get("SWITCHGEAR_SECRET_KEY") or secret_key(options.var),
    }
    return chosen


def keep(var: Path, chosen: dict[str, str]) -> None:
    """Leave the variables for `manage.py`."""
    write_private(var / _KEPT, json.dumps(chosen, indent=1) + "\n")


def recall(environ: MutableMapping[str, str] = os.environ) -> None:
    """Fill gaps in `environ` from the copy of the last `make up`, if there is one.

    Raises LaunchError if the copy is there and cannot be read.
    """
    path = Path(environ.get("SWITCHGEAR_VAR") or CHECKOUT / "var") / _KEPT
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, f"reading {path}") from error
    except ValueError:
        raise LaunchError(f"{path} is damaged; `make up` writes it anew.") from None
    if environ.get("DATABASE_URL"):
        # An owner is one database's: what the kept one owns is not what the caller means.
        kept.pop("DATABASE_OWNER_URL", None)
    for name, value in kept.items():
        environ.setdefault(name, value)
