"""Is a server on this machine answering?

Invariant: any trouble counts as "not yet", and never raises.
"""

import http.client
import socket
from urllib.parse import urlsplit

_PATIENCE = 2.0


def answers(*urls: str) -> bool:
    """True if a GET of each URL is answered with 200."""
    return all(_status(url) == 200 for url in urls)


def _status(url: str) -> int:
    address = urlsplit(url)
    link = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PATIENCE)
    try:
        link.request("GET", address.path or "/", headers={"Connection": "close"})
        return link.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        link.close()


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """True if something accepts TCP connections there."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE):
            return True
    except OSError:
        return False
