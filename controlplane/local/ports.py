"""Loopback ports: which are free, and keeping to the one used last time.

Invariant: a remembered port is only a preference; one that is busy is replaced, never fought for.
"""

import errno
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """True if a server could listen on `host:port` now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections still in TIME_WAIT must not make the port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_port() -> int:
    """A loopback port that nothing uses at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def remembered_port(note: Path) -> int:
    """The port written in `note` if it is still free, else a new one, which is written there."""
    try:
        port = int(note.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        port = 0
    if not 1024 <= port <= 65535 or not is_free(port):
        port = free_port()
        note.write_text(f"{port}\n", encoding="ascii")
    return port
