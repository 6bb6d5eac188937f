"""Which operating-system user a server runs as, and what that user can reach.

Invariant: nothing here ever widens the permissions of a folder that the product did not make.
"""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from .errors import LaunchError


@dataclass(frozen=True, slots=True)
class Account:
    """A user to become when started by root."""

    name: str
    uid: int
    gid: int


def service_account() -> Account | None:
    """The user for servers that refuse to run as root; None when we are not root.

    `SWITCHGEAR_RUN_AS` names another one than `nobody`.
    """
    if os.geteuid() != 0:
        return None
    name = os.environ.get("SWITCHGEAR_RUN_AS", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LaunchError(
            f"Postgres refuses to run as root, and this machine has no user {name!r} to run it "
            "as. Start as an ordinary user, or name one with SWITCHGEAR_RUN_AS."
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def check_named() -> None:
    """Say plainly that a bare number (`docker run --user`) is no user: Postgres looks it up."""
    number = os.geteuid()
    try:
        pwd.getpwuid(number)
    except KeyError:
        raise LaunchError(
            f"The user id {number} has no name in /etc/passwd, and Postgres refuses to run without "
            "one. Add an entry, start as another user, or set DATABASE_URL to another Postgres."
        ) from None


def owner_of(path: Path, account: Account | None) -> Account | None:
    """The user of an existing data directory: root goes on as whoever made it.

    Postgres refuses a directory of another owner, and to change owners would lock that one out.
    """
    if account is None or not path.exists():
        return account
    status = path.stat()
    if status.st_uid in (0, account.uid):
        return account
    return Account(str(status.st_uid), status.st_uid, status.st_gid)


def can_enter(account: Account, folder: Path) -> bool:
    """True if `account` may pass through every folder down to `folder`, by the mode bits."""
    resolved = folder.resolve()
    return all(_may_search(account, step) for step in (resolved, *resolved.parents))


def _may_search(account: Account, folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def give(account: Account | None, path: Path) -> None:
    """Hand one file or folder to `account`; nothing to do when it is us."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
