"""Certificates of a private authority, made anew for each run.

The library is imported where the first one is made: who only collects the tests does without it.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import trustme


class Authority(NamedTuple):
    """A private CA; ``file`` holds its certificate."""

    ca: trustme.CA
    file: Path

    @classmethod
    def in_folder(cls, folder: Path, name: str = "ca.pem") -> Authority:
        """A new one."""
        import trustme

        ca, file = trustme.CA(), folder / name
        ca.cert_pem.write_to_path(file)
        return cls(ca, file)

    def context(self, *names: str, **dates: Any) -> ssl.SSLContext:
        """Of a server with a certificate for these names, valid at these dates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("localhost",)), **dates).configure_cert(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def own_context(self) -> ssl.SSLContext:
        """Of a server that shows the authority's own certificate, signed by itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with self.ca.cert_pem.tempfile() as cert, self.ca.private_key_pem.tempfile() as key:
            context.load_cert_chain(cert, key)
        return context
