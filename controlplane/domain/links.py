"""Which addresses may become a link on a page.

Invariant: only http and https with a host, and nothing that a reader would take for another host
(a name and password before it, blanks, control characters). Pure.
"""

from __future__ import annotations

import unicodedata
from urllib.parse import urlsplit

LONGEST = 500


def web_address(text: str) -> str:
    """``text`` without surrounding blanks, as an address that may be linked to.

    Raises ``ValueError`` that says what to write.
    """
    address = text.strip()
    if len(address) > LONGEST:
        raise ValueError(f"write at most {LONGEST} characters")
    if any(c.isspace() or unicodedata.category(c)[0] == "C" or c == "\\" for c in address):
        raise ValueError("write an address without blanks, backslashes and control characters")
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"write an address such as https://status.example.com ({error})") from None
    if parts.scheme not in ("http", "https") or not address.partition(":")[2].startswith("//"):
        raise ValueError("write an address that begins with https:// or http://")
    if not host:
        raise ValueError("write an address with a host, such as https://status.example.com")
    if parts.username is not None or parts.password is not None:
        raise ValueError("write an address without a name or password in it")
    return address
