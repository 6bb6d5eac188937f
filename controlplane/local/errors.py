"""The one error of the launcher: a message a person can act on, never a traceback."""

import errno
import re

_FULL_DISK = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


class LaunchError(Exception):
    """Something on this machine prevents the start; the message says what and what to do."""


def reads_as_full_disk(text: str) -> bool:
    """True if a program's output blames a full disk or an exhausted quota."""
    return _FULL_DISK.search(text) is not None


def explain(error: OSError, doing: str) -> LaunchError:
    """Turn an operating-system error met while `doing` into a line to act on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LaunchError(
            f"The disk is full ({doing}). Free some space, or set SWITCHGEAR_VAR to a folder on "
            "another disk, and start again; nothing that was stored is lost."
        )
    if isinstance(error, PermissionError):
        return LaunchError(
            f"Not allowed: {doing}: {error.filename or error}. Was an earlier start made by "
            "another user? Start as that user, or set SWITCHGEAR_VAR to a folder of your own."
        )
    return LaunchError(f"Failed: {doing}: {error}")
