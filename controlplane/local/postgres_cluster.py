"""A Postgres data directory: made whole or not at all, and checked before each start.

Invariant: a directory under its final name is a finished cluster. It is made under another name
and renamed last, so an interrupted start leaves nothing that a later one could trip over. The
superuser's password lies inside it, so the two cannot part.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from .account import Account, give
from .errors import LaunchError, explain, reads_as_full_disk
from .postgres_home import Home

SUPERUSER = "switchgear"
DATABASE = "switchgear"
# What the product runs as; `manage.py migrate` makes it, and the superuser keeps the audit.
RUNTIME = "switchgear_app"
_NOTE = "switchgear.password"
_SETTINGS = "switchgear.conf"


def plain_environment() -> dict[str, str]:
    """The environment of the server's programs: nothing of the caller's PG* or locale."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}


def _run(
    argv: list[str | Path], account: Account | None, *, feed: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        input=feed,
        env=plain_environment(),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def _checked(
    argv: list[str | Path], account: Account | None, doing: str, *, feed: str = ""
) -> None:
    result = _run(argv, account, feed=feed)
    if result.returncode == 0:
        return
    if reads_as_full_disk(result.stdout):
        raise LaunchError(
            f"The disk is full ({doing}). Free about 100 MB, or set SWITCHGEAR_VAR to a folder on "
            "another disk, and start again."
        )
    raise LaunchError(f"Failed: {doing}.\n{result.stdout.strip()[-2000:]}")


def make_cluster(
    home: Home, account: Account | None, *, sync: bool, password: str | None = None
) -> None:
    """Run initdb, create the database, and only then give the directory its name.

    `sync=False` leaves out the fsync of the new files, for tests. Without a `password` a random
    one is made. Raises LaunchError, leaving nothing behind.
    """
    data = home.data
    try:
        for half in data.parent.glob(f"{data.name}.half-*"):
            shutil.rmtree(half, ignore_errors=True)
        stage = Path(tempfile.mkdtemp(prefix=f"{data.name}.half-", dir=data.parent))
        give(account, stage)
    except OSError as error:
        raise explain(error, f"making a folder in {data.parent}") from error
    try:
        _fill(stage, home, account, password or secrets.token_urlsafe(24), sync=sync)
        (stage / "data").rename(data)
        _sync_folder(data.parent)
    except OSError as error:
        raise explain(error, "creating the Postgres cluster") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _fill(stage: Path, home: Home, account: Account | None, password: str, *, sync: bool) -> None:
    secret = stage / "password"
    secret.touch(mode=0o600)
    secret.write_text(password + "\n", encoding="ascii")
    give(account, secret)
    made = stage / "data"
    initdb: list[str | Path] = [home.programs / "initdb", "-D", made, "-U", SUPERUSER]
    initdb += ["-A", "scram-sha-256", f"--pwfile={secret}", "--locale=C", "-E", "UTF8"]
    _checked(initdb if sync else [*initdb, "--no-sync"], account, "creating the Postgres cluster")
    with (made / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write(
            f"\n# Written anew at each start; ALTER SYSTEM still wins.\ninclude '{_SETTINGS}'\n"
        )
    write_settings(made, account, [])
    single: list[str | Path] = [home.programs / "postgres", "--single", "-D", made, "postgres"]
    if not sync:
        single[2:2] = ["-c", "fsync=off"]
    _checked(single, account, "creating the database", feed=f"CREATE DATABASE {DATABASE};\n")
    secret.rename(made / _NOTE)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_settings(data: Path, account: Account | None, lines: list[str]) -> None:
    """Replace our own settings file, which postgresql.conf includes."""
    fresh = data / f"{_SETTINGS}.new"
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    fresh.chmod(0o600)
    give(account, fresh)
    fresh.replace(data / _SETTINGS)


def check_version(home: Home) -> None:
    """Refuse a cluster of another major version; Postgres would only say it in its log."""
    try:
        found = (home.data / "PG_VERSION").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise LaunchError(
            f"{home.data} is not a Postgres cluster (no PG_VERSION in it). Move it away, and the "
            "next start makes a new one."
        ) from None
    if found != home.major:
        raise LaunchError(
            f"{home.data} was made by Postgres {found}, and this version of Switchgear brings "
            f"Postgres {home.major}. Dump it with the old version (`pg_dump`), move the folder "
            "away, start again, and load the dump; or set DATABASE_URL to a server of your own."
        )


def read_password(home: Home, account: Account | None) -> str:
    """The superuser's password; a lost file is healed by setting a new one, server stopped."""
    note = home.data / _NOTE
    try:
        password = note.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        password = ""
    if password:
        return password
    password = secrets.token_urlsafe(24)
    single: list[str | Path] = [home.programs / "postgres", "--single", "-D", home.data, DATABASE]
    statement = f"ALTER ROLE {SUPERUSER} PASSWORD '{password}';\n"
    _checked(single, account, "setting a new database password", feed=statement)
    fresh = note.with_name(f"{_NOTE}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(password + "\n", encoding="ascii")
    give(account, fresh)
    fresh.replace(note)
    return password
