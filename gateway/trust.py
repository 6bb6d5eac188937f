"""Whose certificates are believed: those of the host's own store, and of a ``ca_file`` beside it.

Invariant: every TLS connection checks the certificate, its dates and its name. Nothing can switch
that off. The host's store is where OpenSSL looks, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` included;
it is read once, at the first use.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path

import aiohttp

# OpenSSL's words for a certificate that may be as good as any, only not to this host (x509_vfy.h):
# no issuer at hand (2, 20, 21), signed by itself (18, 19), not valid yet (9: clocks are set back
# more often than certificates are used before their time).
_UNKNOWN_HERE = frozenset({2, 9, 18, 19, 20, 21})


class Untrusted(Exception):
    """A file that holds no certificates to trust; the text says why."""


def authorities(path: Path) -> str:
    """The certificates of a PEM file, checked. Raises ``Untrusted``."""
    try:
        text = path.read_bytes().decode("ascii", "ignore")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise Untrusted(f"is not a PEM file of certificates ({error.reason})") from error
    except OSError as error:
        raise Untrusted(f"{error.strerror}") from error
    except ValueError as error:
        raise Untrusted("is not a PEM file of certificates") from error
    if not context.cert_store_stats()["x509_ca"]:
        raise Untrusted("holds no certificate of an authority")
    return text


def missing_store(variable: Callable[[str], str]) -> str:
    """Why this host can check no certificate; empty when it can.

    ``variable`` reads the environment. OpenSSL says nothing of a file that is not there; every
    provider would seem to be an impostor.
    """
    paths = ssl.get_default_verify_paths()
    named = variable(paths.openssl_cafile_env)
    if named:
        try:
            with open(named, "rb"):
                return ""
        except OSError as error:
            return f"{paths.openssl_cafile_env} names {named}: {error.strerror}"
    folder = variable(paths.openssl_capath_env) or paths.openssl_capath
    if os.path.isfile(paths.openssl_cafile) or _holds_something(folder):
        return ""
    return f"this host has no certificates at {paths.openssl_cafile} or {folder}"


@cache
def context(ca: str) -> ssl.SSLContext:
    """For connections to whoever shows a certificate of the host's store or of ``ca`` (PEM)."""
    made = ssl.create_default_context()
    if ca:
        made.load_verify_locations(cadata=ca)
    made.set_alpn_protocols(["http/1.1"])
    return made


def known_here(error: aiohttp.ClientConnectorCertificateError) -> bool:
    """False when the certificate may be good, and this host does not know its authority."""
    found = error.certificate_error
    code = getattr(found, "verify_code", 0)
    return code not in _UNKNOWN_HERE


def told(error: aiohttp.ClientConnectorCertificateError, ca_file: str) -> str:
    """What a person can do about a certificate; ``ca_file`` is the key to set."""
    found = error.certificate_error
    why = getattr(found, "verify_message", "") or str(found)
    whose = f"the certificate of {error.host}:{error.port}"
    if known_here(error):
        return f"{whose} is not good: {why}"
    return (
        f"{whose} is not trusted here: {why}; name its authority in {ca_file}, or in this host's"
        " store, and see that the clock is right"
    )


def _holds_something(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False
