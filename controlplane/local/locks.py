"""Who has a folder: a lock that the kernel lets go of when its holder dies, however it dies.

Invariant: the file's presence means nothing, only the lock on it does; so a stale file is harmless.
"""

import fcntl
import os
from pathlib import Path
from typing import Self

from .errors import LaunchError, explain


class FolderLock:
    """An exclusive lock held through an open file; released by `release` or by our death."""

    def __init__(self, path: Path, busy: str) -> None:
        """`busy` is the message when another process holds it; `{pid}` and `{path}` are filled."""
        self.path = path
        self._busy = busy
        self._file: int | None = None

    def take(self) -> Self:
        """Take the lock and write our pid in the file. Raises LaunchError when it is held."""
        try:
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise explain(error, f"opening the lock file {self.path}") from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(opened, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(opened)
            raise LaunchError(self._busy.format(pid=holder, path=self.path)) from None
        try:
            os.ftruncate(opened, 0)
            os.pwrite(opened, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError as error:
            os.close(opened)
            raise explain(error, f"writing the lock file {self.path}") from error
        self._file = opened
        return self

    def release(self) -> None:
        """Let go. The file stays: deleting it would let two holders lock two different files."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self if self._file is not None else self.take()

    def __exit__(self, *_: object) -> None:
        self.release()
