"""What must be done before the servers start: schema, static files, the first admin and gateway.

Invariant: each step is safe to repeat. Only collecting static files is skipped when nothing that
goes into it has changed, because it costs seconds and the rest does not.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from .children import Supervisor
from .errors import LaunchError
from .logs import ROTATE_AT_START, rotate
from .options import CHECKOUT, Options
from .parts import launcher

CREDENTIALS = "credentials.json"
_NEEDED = ("admin_user", "admin_password", "gateway_name", "gateway_token")
_STATIC_SOURCES = ("dashboard/static", "dashboard/static_files.py", "requirements.lock")


def prepare(options: Options, supervisor: Supervisor, chosen: Mapping[str, str]) -> None:
    """Migrate, collect static files if they changed, make the first admin and gateway.

    Raises LaunchError with the end of the log if a step fails.
    """
    rotate(options.logs / "steps.log", ROTATE_AT_START)
    _manage(options, supervisor, chosen, "Updating the database schema", "migrate", "--noinput")
    stamp = options.var / "static.stamp"
    current = _static_fingerprint()
    if not (options.var / "static").is_dir() or _read(stamp) != current:
        _manage(
            options,
            supervisor,
            chosen,
            "Collecting static files",
            *("collectstatic", "--noinput", "--clear", "--verbosity", "0"),
        )
        stamp.write_text(current, encoding="ascii")
    # The dialog that forces a circuit names its fallbacks: the control plane has to know them.
    routes = ("--routes", str(CHECKOUT / "gateway" / "demo.toml")) if options.demo else ()
    title = "Checking the first admin and gateway"
    _manage(options, supervisor, chosen, title, "bootstrap", *routes)


def _manage(
    options: Options, supervisor: Supervisor, chosen: Mapping[str, str], title: str, *args: str
) -> None:
    supervisor.say(title)
    log = options.logs / "steps.log"
    supervisor.step(f"manage.py {args[0]}", launcher(log, chosen, "manage.py", *args), log)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def _static_fingerprint() -> str:
    """A hash over names, sizes and times of all that collectstatic reads (libraries by lock)."""
    seen = hashlib.sha256()
    for source in _STATIC_SOURCES:
        root = CHECKOUT / source
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file():
                status = path.stat()
                line = f"{path.relative_to(CHECKOUT)} {status.st_size} {status.st_mtime_ns}\n"
                seen.update(line.encode())
    return seen.hexdigest()


def read_credentials(options: Options) -> dict[str, str]:
    """What `manage.py bootstrap` made. Raises LaunchError if it is missing or damaged."""
    path = options.var / CREDENTIALS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(found[name]) for name in _NEEDED}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(
            f"{path} cannot be used ({error!r}). Move it away and start again: new credentials "
            "are made, the data stays."
        ) from None
