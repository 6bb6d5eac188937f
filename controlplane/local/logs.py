"""The log file of each child: opened for append, kept from growing without end, read when it dies.

Invariant: children hold their file open in append mode, so it may be emptied under them; what
they write next lands at its new beginning.
"""

import shutil
from pathlib import Path
from typing import IO

# Sizes in bytes. One older file is kept beside the current one.
ROTATE_AT_START = 5 << 20
ROTATE_WHILE_RUNNING = 50 << 20


def open_log(path: Path) -> IO[bytes]:
    """Open a child's log for append, with the mode 0600: it may name people and addresses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path.open("ab")


def rotate(path: Path, limit: int) -> bool:
    """Move a log larger than `limit` to `<name>.1`, leaving it empty; says whether it did."""
    try:
        if path.stat().st_size <= limit:
            return False
        shutil.copy2(path, path.with_name(f"{path.name}.1"))
        with path.open("r+b") as file:
            file.truncate(0)
    except OSError:
        # A log is no reason to stop anything: not even on a full disk.
        return False
    return True


def last_words(path: Path, lines: int = 8) -> str:
    """The last lines of a log, empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16_384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])
