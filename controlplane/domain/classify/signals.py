"""What an error answer says, whatever shape its provider gives it: codes, messages, a status.

Shapes read: ``{"error": {...}}``, ``{"error": "text"}``, flat objects, lists of either, Google
``details``, nested provider errors (``innererror``, ``metadata.raw``, ``base_resp``), Amazon's
``x-amzn-errortype`` and ``__type``, and HTML or plain text.

Invariant: bounded work on any input, and it never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST = 4000
_CODE_NAMES = (
    "code", "type", "status", "reason", "error_code", "error_type", "error_name", "__type",
    "quotaId", "errorCode", "blockReason", "raw_status_code", "status_code", "http_code",
)  # fmt: skip
_TEXT_NAMES = ("message", "msg", "detail", "status_msg", "error_description", "raw", "title")
_INNER_NAMES = (
    "error", "errors", "innererror", "inner_error", "details", "violations", "metadata",
    "base_resp", "detail", "raw", "cause", "response",
)  # fmt: skip
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_TITLE = re.compile(r"<title[^>]*>([^<]{0,300})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Signals:
    """``codes``: lower case, letters and digits only (``RateLimitReached``: ``ratelimitreached``).

    ``message``: all texts, joined, lower case. ``inner_status``: an HTTP error status that the body
    itself states. ``has_wait``: a google.rpc.RetryInfo is there. ``html``: it is a web page.
    """

    codes: tuple[str, ...]
    message: str
    inner_status: int | None
    has_wait: bool
    html: bool


def read_signals(headers: Mapping[str, str], body: Any) -> Signals:
    """Collect the signals of one error answer; ``headers`` have lower-case names."""
    tree = parse_body(body)
    codes: list[str] = []
    texts: list[str] = []
    html = False
    if isinstance(tree, str):
        html = is_html(headers, tree)
        titles = _TITLE.findall(tree[:_LONGEST])
        texts.append(titles[0] if html and titles else "" if html else tree[:_LONGEST])
    amazon = headers.get("x-amzn-errortype", "")
    if amazon:
        codes.append(amazon.partition(":")[0])
    statuses: list[int] = []
    has_wait = False
    for item in _objects(tree):
        has_wait = has_wait or "retryDelay" in item
        _collect(item, codes, texts, statuses)
    return Signals(
        tuple(dict.fromkeys(filter(None, (normal(code) for code in codes)))),
        " ".join(texts)[: 2 * _LONGEST].lower(),
        statuses[0] if statuses else None,
        has_wait,
        html,
    )


def _collect(
    item: Mapping[str, Any], codes: list[str], texts: list[str], statuses: list[int]
) -> None:
    for name in _CODE_NAMES:
        value = item.get(name)
        if isinstance(value, str):
            code = value[:200].rpartition("#")[2]
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
            code = str(value)
        else:
            continue
        codes.append(code)
        if re.fullmatch("[45][0-9]{2}", code):
            statuses.append(int(code))
    for name in _TEXT_NAMES:
        if isinstance(item.get(name), str):
            texts.append(item[name][:_LONGEST])
    if isinstance(item.get("error"), str):
        codes.append(item["error"][:200])
        texts.append(item["error"][:_LONGEST])


def normal(code: str) -> str:
    """A code without case and punctuation, so that one pattern meets every spelling."""
    return _NOT_WORD.sub("", code.lower())


def parse_body(body: Any) -> Any:
    """JSON text as an object; other text, and what is parsed already, as it is."""
    if isinstance(body, dict):
        return body
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def is_html(headers: Mapping[str, str], text: str) -> bool:
    """True for a web page: an edge, a proxy or a login answered, not the API."""
    start = text.lstrip()[:20].lower()
    return start.startswith(("<!doctype", "<html")) or (
        start.startswith("<") and "html" in headers.get("content-type", "").lower()
    )


def _objects(tree: Any, depth: int = 6) -> Iterator[Mapping[str, Any]]:
    """The error objects of a body, outer ones first; only members that hold errors are entered."""
    if isinstance(tree, list | tuple):
        for member in tree[:20]:
            yield from _objects(member, depth - 1) if depth else ()
    if not isinstance(tree, Mapping):
        return
    yield tree
    for name in _INNER_NAMES:
        inner = tree.get(name)
        if name == "raw" and isinstance(inner, str):
            inner = parse_body(inner[: 4 * _LONGEST])
        if depth and isinstance(inner, Mapping | list | tuple):
            yield from _objects(inner, depth - 1)
