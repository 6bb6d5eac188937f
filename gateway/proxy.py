"""The gateway's HTTP side: who may ask, what is asked, and which exchange serves it.

Invariant: every error that is not a provider's own has the OpenAI API's shape; bad input is a 4xx
that names the field. Bodies, prompts and keys are never logged.
"""

from __future__ import annotations

import asyncio
import json
import logging

import msgspec
from aiohttp import web
from msgspec import Struct

from controlplane.wire.events import Text
from gateway import answers, asked, passing
from gateway.admission import Admission
from gateway.asked import Asked, Unreadable
from gateway.callers import Callers, Identity, Refused, label
from gateway.config import Route
from gateway.deliveries import Deliveries
from gateway.exchange import Exchange, Path
from gateway.ledger import Ledger, explicit_outcome
from gateway.opaque import Opaque
from gateway.operations import CHAT, CHAT_PATH, KNOWN_PATHS, Operation, of_path
from gateway.raw_answer import RawAnswer
from gateway.redelivery import Redeliveries, Seen

log = logging.getLogger(__name__)

_TASKS, _OUTCOME = "/switchgear/tasks/", "/outcome"
_MAX_OUTCOME = 16 * 1024


class _Outcome(Struct, forbid_unknown_fields=True):
    """The caller's word on a task."""

    success: bool
    reason: Text = ""


class Proxy:
    """The handler of one worker. ``draining``: ready for nothing new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._callers = Callers(path.config)
        self._admission = Admission(path.config.limits)
        self._deliveries = Deliveries(path.config.gateway.data_dir / "run" / "deliveries")
        self._redeliveries = Redeliveries(self._deliveries)
        self.draining = False

    def close(self) -> None:
        """After the last request."""
        self._deliveries.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        answer = await self._answer(request)
        if not isinstance(answer, RawAnswer):
            self._path.upstream.outgoing.flush()  # aiohttp sends it by itself, and at once
        return answer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._dispatch(request)
        except Refused as error:
            kind = "authentication_error" if error.status == 401 else "invalid_request_error"
            codes = {401: "invalid_api_key", 404: "model_not_found", 408: "body_timeout"}
            code = codes.get(error.status, "invalid_header")
            return answers.error(error.status, str(error), kind=kind, code=code, param=error.field)
        except Unreadable as error:
            return answers.bad_request(str(error), error.field)
        except web.RequestPayloadError:
            text = "the body is not what its content-encoding or transfer-encoding says"
            return answers.bad_request(text)
        except web.HTTPRequestEntityTooLarge:
            most = self._path.config.limits.body_bytes
            return answers.bad_request(f"the body is larger than {most} bytes", status=413)
        except Exception:
            log.exception("a request failed inside the gateway")
            text = "the gateway failed while serving this request"
            return answers.error(500, text, kind="server_error", code="gateway_fault")

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        operation = CHAT if path == CHAT_PATH else of_path(path)
        known = operation is not None and path in KNOWN_PATHS
        if operation is not None and (known or (method == "POST" and not passing.passes(request))):
            return (
                await self._serve(request, operation) if method == "POST" else _wrong_method("POST")
            )
        if path.startswith(_TASKS) and path.endswith(_OUTCOME):
            return await self._outcome(request) if method == "POST" else _wrong_method("POST")
        of_models = path == "/v1/models" or path.startswith("/v1/models/")
        if path.startswith("/v1/") and not of_models and passing.passes(request):
            return await self._pass(request)
        if method not in ("GET", "HEAD"):
            return _unknown(path)
        if of_models:
            self._callers.tenant(request.headers)
            return self._models(path.removeprefix("/v1/models").removeprefix("/"))
        if path == "/healthz":
            return web.json_response({"status": "ok"})
        return self._readiness() if path == "/readyz" else _unknown(path)

    async def _serve(self, request: web.BaseRequest, operation: Operation) -> web.StreamResponse:
        who = self._callers.identify(request.headers)
        asked_for = asked.read(await self._body(request))
        route = self._path.live.route(asked_for.model)
        if route is None:
            return _no_route(asked_for.model)
        return await self._admitted(request, operation, asked_for, route, who)

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a request whose body is not read."""
        who = self._callers.identify(request.headers)
        passed = await passing.read(request, self._path.config, self._path.live)
        return await self._admitted(request, *passed, who)

    async def _admitted(
        self,
        request: web.BaseRequest,
        operation: Operation,
        asked_for: Asked | Opaque,
        route: Route,
        who: Identity,
    ) -> web.StreamResponse:
        if not self._admission.enter(who.priority):
            return self._full(route, who)
        try:
            return await self._once(request, operation, asked_for, route, who)
        finally:
            self._admission.leave()

    async def _body(self, request: web.BaseRequest) -> bytes:
        """The whole body, within the caller's time for it."""
        most = self._path.config.limits.body_bytes
        if request.content.is_eof():
            # It came with its head, as nearly all do: read() would go twice around for it.
            body = request.content.read_nowait()
            if len(body) > most:
                raise web.HTTPRequestEntityTooLarge(most)
            return body
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(most)
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        seconds = self._path.config.limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await request.read()
        except TimeoutError:
            raise Refused(408, "body", f"the body took more than {seconds:g} s to come") from None

    async def _once(
        self,
        request: web.BaseRequest,
        operation: Operation,
        asked_for: Asked | Opaque,
        route: Route,
        who: Identity,
    ) -> web.StreamResponse:
        key, clock = who.idempotency_key, self._path.clock
        seen = Seen.NEVER
        if key is not None:
            seen = self._redeliveries.begin(who.tenant, key, clock.monotonic())
            if seen is Seen.IN_FLIGHT:
                text = "a request with this idempotency key is still being served"
                return answers.error(409, text, kind="conflict", code="in_flight")
        try:
            redelivery = who.sdk_retry or seen is Seen.BEFORE
            exchange = Exchange(
                self._path, request, operation, asked_for, route, who, redelivery=redelivery
            )
            return await exchange.run()
        finally:
            if key is not None:
                self._redeliveries.end(who.tenant, key, clock.monotonic())

    def _full(self, route: Route, who: Identity) -> web.Response:
        """Turn a request away before anything of it is done, and say so in the events."""
        live = self._path.live
        ledger = Ledger(
            self._path.clock,
            self._path.sink,
            tenant=who.tenant,
            task=who.task,
            route=route.name,
            generation=live.in_force.generation,
        )
        ledger.refused(live.folded(route.targets[0].circuit), "concurrency", who.priority.value)
        ledger.outcome(False, "concurrency")
        headers = answers.decision_headers(str(ledger.request), 0, "refused", None)
        text = f"the gateway is full for requests of priority {who.priority.value}"
        return answers.error(
            503, text, kind="refused", code="concurrency", headers=headers, retry_after_s=1
        )

    async def _outcome(self, request: web.BaseRequest) -> web.Response:
        tenant = self._callers.tenant(request.headers)
        task = request.path[len(_TASKS) : -len(_OUTCOME)]
        if not task or not label(task):
            raise Refused(400, "task", "the task's id: 1 to 200 printable characters")
        body = await self._body(request)
        try:
            if len(body) > _MAX_OUTCOME:
                raise Unreadable(None, f"the body is larger than {_MAX_OUTCOME} bytes")
            said = msgspec.json.decode(body, type=_Outcome)
        except msgspec.DecodeError as error:
            raise Unreadable(None, f'expected {{"success": true|false}}: {error}') from error
        reason = said.reason[:200]
        event = explicit_outcome(self._path.clock, tenant, task, said.success, reason)
        self._path.sink.append(event)
        return web.json_response({"task": task, "success": said.success}, status=202)

    def _models(self, name: str) -> web.Response:
        names = self._path.live.routes()
        if name:
            if name not in names:
                return _no_route(name)
            return web.json_response(_model(name))
        return web.json_response({"object": "list", "data": [_model(one) for one in names]})

    def _readiness(self) -> web.Response:
        in_force = self._path.live.in_force
        told = {
            "status": "draining" if self.draining else "ready",
            "gateway": self._path.config.gateway.name,
            "generation": in_force.generation,
            "config_source": in_force.source,
            "in_flight": self._admission.in_flight,
        }
        return web.Response(
            status=503 if self.draining else 200,
            body=json.dumps(told).encode(),
            content_type="application/json",
        )


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "switchgear"}


def _no_route(name: str) -> web.Response:
    text = f"this gateway has no route named {name[:200]!r}"
    kind = "invalid_request_error"
    return answers.error(404, text, kind=kind, code="model_not_found", param="model")


def _unknown(path: str) -> web.Response:
    text = f"nothing is served at {path[:200]!r}"
    return answers.error(404, text, kind="invalid_request_error", code="unknown_path")


def _wrong_method(allowed: str) -> web.Response:
    return answers.error(
        405,
        f"use {allowed}",
        kind="invalid_request_error",
        code="method_not_allowed",
        headers={"allow": allowed},
    )
