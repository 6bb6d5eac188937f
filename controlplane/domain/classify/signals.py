"""What an error answer says, whatever shape its provider gives it: codes, messages, a status.

Shapes read: ``{"error": {...}}``, ``{"error": "text"}``, flat objects, lists of either, Google
``details``, nested provider errors (``innererror``, ``metadata.raw``, ``base_resp``), an error as
text inside another's message, Amazon's ``x-amzn-errortype`` and ``__type``, and HTML or plain text.
Names are read without case and punctuation: ``error_code`` and ``ErrorCode`` are one.

Invariant: bounded work on any input, and it never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.domain.error_body import folded, normal, objects, parse_body, wrapped

_LONGEST = 4000
_CODE_NAMES = (
    "code", "type", "status", "reason", "errorcode", "errortype", "errorname", "quotaid",
    "blockreason", "rawstatuscode", "statuscode", "httpcode",
)  # fmt: skip
_TEXT_NAMES = (
    "message", "msg", "detail", "statusmsg", "errordescription", "errormsg", "errormessage",
    "raw", "title",
)  # fmt: skip
_INNER_NAMES = frozenset(
    {"error", "errors", "innererror", "details", "violations", "metadata", "baseresp", "detail"}
    | {"raw", "cause", "response", "message"}
)
_TITLE = re.compile(r"<title[^>]*>([^<]{0,300})", re.IGNORECASE)
# What an edge says of a call that it stopped itself: Cloudflare, Vercel, Amazon's WAF.
_STOPPED = {
    "cf-mitigated": frozenset({"challenge"}),
    "x-vercel-mitigated": frozenset({"challenge", "deny"}),
    "x-amzn-waf-action": frozenset({"challenge", "captcha"}),
}
# How providers begin when they refuse one part of a request, whose text they then quote.
_PART = re.compile(
    r"(litellm\.badrequesterror: )?(\w{1,40}exception - )?('|\* generatecontentrequest\.)?("
    r"\[?\{'type': '|\d+ validation errors?\b|invalid (value|type|schema|json)\b"
    r"|un(supported|known|recognized|expected) (value|parameter|name|field|file|argument"
    r"|request argument)\b"
    r"|we could not parse the json|failed to (deserialize|parse) the (json|request)"
    r"|input should be|field required|value error, |extra inputs|additional properties"
    r"|missing required|(messages|tools|input|contents|system|thinking|metadata|tool_choice"
    r"|response_format)[.\[]\S{0,200} ?: )"
)
# An older check of theirs quotes first and ends with the place.
_PLACE = re.compile(r"(is not of type '\w+'|is a required property|is too (short|long)) - '")
_NO_PART = frozenset(
    {"", "none", "null", "model", "deployment", "key", "api_key", "quota", "queue", "billing"}
)


@dataclass(frozen=True, slots=True)
class Signals:
    """``codes``: lower case, letters and digits only (``RateLimitReached``: ``ratelimitreached``).

    ``message``: all texts, joined, lower case. ``inner_status``: an HTTP error status that the body
    itself states. ``has_wait``: a google.rpc.RetryInfo is there. ``html``: it is a web page.
    ``stopped``: an edge says that it stopped the call itself. ``part``: one part of the request is
    named as wrong, but for the model: the message may quote what the client wrote there.
    """

    codes: tuple[str, ...]
    message: str
    inner_status: int | None
    has_wait: bool
    html: bool
    stopped: bool
    part: bool


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
        codes.append(amazon[:200].partition(":")[0])
    statuses: list[int] = []
    has_wait = part = False
    for item in objects(tree, _INNER_NAMES):
        has_wait = has_wait or "retryDelay" in item
        part = part or _names_a_part(item)
        _collect(folded(item), codes, texts, statuses)
    message = " ".join(texts)[: 2 * _LONGEST].lower()
    return Signals(
        tuple(dict.fromkeys(filter(None, (normal(code) for code in codes)))),
        message,
        statuses[0] if statuses else None,
        has_wait,
        html,
        was_stopped(headers),
        part or bool(_PART.match(message) or (" - '" in message and _PLACE.search(message))),
    )


def _names_a_part(item: Mapping[str, Any]) -> bool:
    param, place = item.get("param"), item.get("loc")
    return (isinstance(param, str) and param.lower() not in _NO_PART) or (
        isinstance(place, list) and place[:1] == ["body"]
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
        text = item.get(name)
        if isinstance(text, str) and wrapped(text) is None:
            texts.append(text[:_LONGEST])
    stated = item.get("error")
    if isinstance(stated, str) and wrapped(stated) is None:
        codes.append(stated[:200])
        texts.append(stated[:_LONGEST])


def was_stopped(headers: Mapping[str, str]) -> bool:
    """True when an edge says that the call ended there: a program cannot pass its challenge."""
    return any(headers.get(name, "").lower() in words for name, words in _STOPPED.items())


def is_html(headers: Mapping[str, str], text: str) -> bool:
    """True for a web page: an edge, a proxy or a login answered, not the API."""
    start = text.lstrip()[:20].lower()
    return start.startswith(("<!doctype", "<html")) or (
        start.startswith("<") and "html" in headers.get("content-type", "").lower()
    )
