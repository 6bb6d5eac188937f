"""A request whose body the gateway passes on without reading it: a GET, a form, a body of unknown
kind (design 4.4).

Invariants: apart from the form's ``model`` the body goes to the provider byte for byte; no more
than ``HEAD_BYTES`` of it are ever held, so the rest of a longer one can be sent only once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

from controlplane.domain import usage
from controlplane.domain.verdict import Verdict
from controlplane.wire.events import Billing

HEAD_BYTES = 2**20
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^;,\s"]{1,200}))', re.IGNORECASE)
# Bounded everywhere: a search must not take longer than its text is long.
_LINES = rb"(?:[^\r\n]{1,500}\r\n){0,10}"
_MODEL_PART = (
    rb'content-disposition:[^\r\n]{0,200}; ?name=(?:"model"|model)(?:;[^\r\n]{0,200})?\r\n'
    + _LINES
    + rb"\r\n"
)
_NO_EFFECT = frozenset({"GET", "DELETE"})


class Unread(NamedTuple):
    """How a body that is not read goes out. ``query`` is as the caller wrote it, without ``?``.

    ``rest`` gives what comes after the head, once; ``rest_length`` is how much, None when the
    caller does not say.
    """

    method: str
    query: str
    content_type: str
    rest: Callable[[], AsyncGenerator[bytes, None]] | None = None
    rest_length: int | None = 0


class Opaque(NamedTuple):
    """What the request loop may know of such a request. ``head``: its whole body, or the begin of
    it. ``field``: where in the head the form's model stands."""

    method: str
    head: bytes
    size: int
    field: tuple[int, int] | None = None
    stream: bool = False
    wants_usage: bool = False

    def body_for(self, model: str, _ask_usage: bool) -> bytes:
        """The head for a target's model."""
        if self.field is None:
            return self.head
        start, end = self.field
        return self.head[:start] + model.encode() + self.head[end:]

    def prompt_estimate(self) -> int:
        """Tokens cannot be told from a recording or a picture: nothing is reserved for them."""
        return 0

    def output_limit(self) -> int:
        """As ``prompt_estimate``."""
        return 0

    def used(
        self, provider: str, body: Mapping[str, Any] | None, *, verdict: Verdict, left_us: bool
    ) -> tuple[usage.Tokens | None, Billing]:
        """What an attempt used: what its answer says, and otherwise nothing is made up."""
        if self.method in _NO_EFFECT or not left_us or (body and usage.only_counted(body)):
            return None, "not_billed"
        counted = usage.tokens(provider, body)
        if counted.invalid or counted.input is not None or counted.output is not None:
            return counted, "billed"
        # An answer in words is an answer; a body that is none may have been worked on.
        return None, "not_billed" if body is not None and not verdict.ok else "unknown"


def form_model(content_type: str, head: bytes) -> tuple[str, tuple[int, int]] | None:
    """The ``model`` of a multipart form and where it stands; None when the head does not have it.

    >>> form_model('multipart/form-data; boundary=x',
    ...     b'--x\\r\\nContent-Disposition: form-data; name="model"\\r\\n\\r\\nm-1\\r\\n--x--')
    ('m-1', (54, 57))
    """
    found = _BOUNDARY.search(content_type)
    if found is None or not content_type.lower().startswith("multipart/form-data"):
        return None
    mark = b"--" + (found[1] or found[2]).encode("utf-8", "surrogateescape")
    # Inside a file's bytes the same words may stand: only a part's own head counts.
    part = re.compile(re.escape(mark) + rb"\r\n" + _LINES + b"?" + _MODEL_PART, re.IGNORECASE)
    at = part.search(head)
    if at is None:
        return None
    end = head.find(b"\r\n" + mark, at.end())
    if end < 0 or end - at.end() > 200:
        return None
    return head[at.end() : end].decode("utf-8", "replace"), (at.end(), end)
