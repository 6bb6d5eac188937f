"""Unpack a compressed body within a bound.

Invariant: never more than ``limit`` bytes come out, whatever the input claims, and what is not
whole or has something behind it is an error. Memory is bounded by the limit plus one window.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable

from controlplane.errors import Problem, TooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# 8 MiB: what every decoder of RFC 8878 has to support; a larger window is the sender's bomb.
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}


# Each gzip member or zstd frame costs a copy of what is behind it: 4 MiB of empty frames were
# measured at minutes of processor time. Senders that write in pieces need a few.
MOST_PARTS = 64


def known(encoding: str) -> bool:
    """True for an encoding that ``unpack`` reads ('' and identity: as it is)."""
    return encoding in _UNPACKERS


def unpack(encoding: str, body: bytes, limit: int) -> bytes:
    """The body's plain bytes; ``TooLarge`` beyond ``limit``, 400 when it is damaged."""
    return _UNPACKERS[encoding](body, limit)


def _identity(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _gzip(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while body:
        stream = zlib.decompressobj(wbits=31)
        try:
            # One byte more than allowed tells "just fits" from "too large".
            part = stream.decompress(body, left + 1)
        except zlib.error as error:
            raise Problem("The body is not gzip.", code="bad_encoding") from error
        left -= len(part)
        if left < 0:
            raise _too_large(limit)
        if not stream.eof:
            raise Problem("The gzip body is cut off.", code="bad_encoding")
        parts.append(part)
        body = _rest(stream.unused_data, parts)
    return b"".join(parts)


def _zstd(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while body:
        stream = zstd.ZstdDecompressor(options=_WINDOW)
        try:
            part = stream.decompress(body, left + 1)
        except zstd.ZstdError as error:
            raise Problem("The body is not zstd.", code="bad_encoding") from error
        left -= len(part)
        if left < 0:
            raise _too_large(limit)
        if not stream.eof:
            raise Problem("The zstd body is cut off.", code="bad_encoding")
        parts.append(part)
        body = _rest(stream.unused_data, parts)
    return b"".join(parts)


def _rest(body: bytes, parts: list[bytes]) -> bytes:
    """What is behind the parts that were unpacked; 400 when it is one too many."""
    if body and len(parts) == MOST_PARTS:
        raise Problem(
            f"The body is packed in more than {MOST_PARTS} parts: pack it as one.",
            code="bad_encoding",
        )
    return body


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body unpacks to more than {limit} bytes.")


_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "": _identity,
    "identity": _identity,
    "gzip": _gzip,
    "zstd": _zstd,
}
