"""What the gateway itself says to a caller: errors in the OpenAI API's shape, and its own headers.

Invariant: every error says ``x-should-retry: false``, which the official SDKs obey, because one
layer owns retries and it is this one (design 4.4). A text here never holds a prompt or a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from controlplane.domain.circuit import Circuit
from controlplane.domain.request_plan import Ending, Send, Stop
from gateway.attempt import Seen
from gateway.last_good import AGE, Held

# Of a provider's answer these are not the caller's: of the connection, or set anew by our server
# or by us (a provider may be another Switchgear).
_NOT_OURS = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding"}
    | {"upgrade", "content-length", "content-encoding", "set-cookie", "server", "date"}
    | {"x-should-retry", "alt-svc", "strict-transport-security"}
    | {"x-switchgear-request", "x-switchgear-attempts", "x-switchgear-decision"}
    | {"x-switchgear-circuit"}
)


def error_body(message: str, kind: str, code: str, param: str | None = None) -> bytes:
    """An error in the API's shape."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}).encode()


def error(
    status: int,
    message: str,
    *,
    kind: str,
    code: str,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    retry_after_s: float | None = None,
) -> web.Response:
    """An error of the gateway's own."""
    return web.Response(
        status=status,
        body=error_body(message, kind, code, param),
        content_type="application/json",
        headers={**(headers or {}), **no_retry(retry_after_s)},
    )


def bad_request(message: str, param: str | None = None, status: int = 400) -> web.Response:
    """The caller's own mistake."""
    code = "invalid_value" if status == 400 else "request_too_large"
    return error(status, message, kind="invalid_request_error", code=code, param=param)


def failed(stop: Stop, seen: Seen | None, headers: Mapping[str, str]) -> web.Response:
    """The answer to a request that was not served and of which nothing was sent."""
    after = stop.retry_after_s
    if stop.ending is Ending.REFUSED:
        gate = stop.gate.value if stop.gate is not None else "policy"
        text = f"no target of this route takes calls now: {gate}: {stop.reason}"
        # 503 and never 429: the caller did nothing too often.
        soonest = 1.0 if after is None else after
        return error(503, text, kind="refused", code=gate, headers=headers, retry_after_s=soonest)
    if stop.ending is Ending.DEADLINE:
        text = "the request's deadline passed before there was an answer"
        return error(504, text, kind="timeout", code="deadline", headers=headers)
    if seen is not None and seen.body is not None and _is_the_callers(seen, stop):
        return web.Response(
            status=seen.status or 502,
            body=seen.body,
            headers=_replaced(passed_on(seen.headers), {**headers, **no_retry(after)}),
        )
    status = 504 if stop.reason == "timeout" else 502
    text = f"the provider did not serve this request: {stop.reason}"
    if stop.reason == "untrusted_certificate":
        text = "this gateway does not trust the provider's certificate; its log says why"
    return error(
        status, text, kind="upstream_error", code=stop.reason, headers=headers, retry_after_s=after
    )


def _replaced(theirs: Mapping[str, str], ours: Mapping[str, str]) -> CIMultiDict[str]:
    """Theirs, but each of ours once, however they wrote its name."""
    headers = CIMultiDict(theirs)
    headers.update(ours)
    return headers


def again(held: Held, now: float, headers: Mapping[str, str]) -> web.Response:
    """A good answer of some minutes ago, marked as one."""
    age = {AGE: str(int(now - held.at))}
    return web.Response(body=held.body, headers={**passed_on(held.headers), **headers, **age})


def _is_the_callers(seen: Seen, stop: Stop) -> bool:
    """May the provider's own error go on? Not when it is about the gateway's key: to the caller a
    401 would say that *its* key is wrong."""
    about_our_key = stop.verdict is not None and stop.verdict.reason in ("auth", "permission")
    return seen.status is not None and 400 <= seen.status < 600 and not about_our_key


def no_retry(retry_after_s: float | None) -> dict[str, str]:
    """Headers of every error. Rounded up: a client that comes a second early is refused again."""
    headers = {"x-should-retry": "false"}
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, ceil(retry_after_s)))
    return headers


class Head:
    """The head of one request's answer. ``sent``: the last attempt that was made."""

    __slots__ = ("_request", "sent")

    def __init__(self, request: str) -> None:
        self._request = request
        self.sent: Send | None = None

    def good(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What the provider said, and what the gateway did for it."""
        return {**passed_on(headers), **self.own(self._decision())}

    def own_lines(self) -> list[str]:
        """What the gateway did, as lines of a head; beside them ``lines_passed_on``."""
        sent = self.sent
        assert sent is not None
        decided = _decided(sent.ordinal, self._decision(), sent.target.circuit)
        return [f"x-switchgear-request: {self._request}\r\n", *decided]

    def _decision(self) -> str:
        sent = self.sent
        assert sent is not None
        return "rerouted" if sent.rerouted else sent.role._value_

    def own(self, decision: str) -> dict[str, str]:
        """What the gateway did."""
        sent = self.sent
        attempts, circuit = (0, None) if sent is None else (sent.ordinal, sent.target.circuit)
        return decision_headers(self._request, attempts, decision, circuit)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a provider's answer that go on to the caller."""
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_OURS}


def lines_passed_on(headers: Mapping[str, str]) -> list[str]:
    """The same as lines of a head, and a content-type in any case."""
    lines = [f"{name}: {value}\r\n" for name, value in passed_on(headers).items()]
    if "content-type" not in headers:
        lines.append("content-type: application/octet-stream\r\n")
    return lines


def decision_headers(
    request: str, attempts: int, decision: str, circuit: Circuit | None
) -> dict[str, str]:
    """What the gateway did, for the caller's logs."""
    headers = {
        "x-switchgear-request": request,
        "x-switchgear-attempts": str(attempts),
        "x-switchgear-decision": decision,
    }
    if circuit is not None:
        headers["x-switchgear-circuit"] = _written(circuit)
    return headers


@lru_cache(maxsize=1024)
def _decided(attempts: int, decision: str, circuit: Circuit) -> tuple[str, ...]:
    """The lines of ``decision_headers`` that many requests share."""
    shared = decision_headers("", attempts, decision, circuit)
    del shared["x-switchgear-request"]
    return tuple(f"{name}: {value}\r\n" for name, value in shared.items())


@lru_cache(maxsize=1024)
def _written(circuit: Circuit) -> str:
    return quote(str(circuit), safe="/@:%+,()[] ")
