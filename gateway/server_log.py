"""What aiohttp's server logs: a caller's broken HTTP is one line, without the caller's own words.

Invariant: nothing that a caller sent stands in a log; aiohttp's messages quote the bytes that it
could not read, and those may be a prompt. Faults of our own keep their traceback.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError


class _Shorten(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | RequestPayloadError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg = "a request that cannot be read was refused: %s"
            record.args = (type(error).__name__,)
            record.exc_info = record.exc_text = None
        return True


log = logging.getLogger(__name__)
log.addFilter(_Shorten())
