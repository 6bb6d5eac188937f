"""The people's door: who is calling, how bodies are read, and how every error is answered.

Invariant: each request has exactly one actor, by session (with CSRF) or by bearer token, never by
both and never by URL; whatever goes wrong is a problem document that names the fields.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser
from ninja.utils import check_csrf

from controlplane.actions import tokens
from controlplane.actions.actor import Actor, actor_of_person, actor_of_token
from controlplane.actions.signin import client_address
from controlplane.errors import (
    Busy,
    Forbidden,
    InvalidInput,
    Problem,
    TooLarge,
    TooSlow,
    Unauthenticated,
)
from controlplane.models import Person, Role
from controlplane.models.pool import AWAY, is_timeout

_IN_URL = {"token", "access_token", "api_key", "authorization"}
_METADATA = {"name": "name", "labels": "labels", "expected_version": "resourceVersion"}

log = logging.getLogger(__name__)


def address_of(request: HttpRequest) -> str:
    """The caller's address, as far as our own proxies vouch for it."""
    remote = request.META.get("REMOTE_ADDR") or ""
    forwarded = request.headers.get("X-Forwarded-For", "")
    return client_address(remote, forwarded, settings.TRUSTED_PROXIES)


def authenticate(request: HttpRequest) -> Actor:
    """The actor, who must be an operator to write. Raises what ``identify`` does, ``Forbidden``.

    The role comes before the body: who may not write is told so, and not what the body lacks.
    """
    actor = identify(request)
    if request.method not in {"GET", "HEAD"}:
        actor.must_be(Role.OPERATOR, "change anything")
    return actor


def identify(request: HttpRequest) -> Actor:
    """The actor of a request. ``Unauthenticated``, ``Forbidden`` (CSRF) or 400 otherwise."""
    if any(name.lower() in _IN_URL for name in request.GET):
        raise Problem(
            "A credential in a URL ends up in logs: send it as a header, and rotate this one.",
            code="token_in_url",
        )
    _refuse_nul(request)
    who = {
        "address": address_of(request),
        "request_id": request.headers.get("X-Request-Id", "")[:64].replace("\x00", ""),
    }
    header = request.headers.get("Authorization")
    if header is not None:
        scheme, _, secret = header.partition(" ")
        token = (
            tokens.valid(secret.strip(), datetime.now(UTC)) if scheme.lower() == "bearer" else None
        )
        if token is None:
            raise Unauthenticated("This token is not known, was revoked, or has expired.")
        return actor_of_token(token, **who)
    if not isinstance(request.user, Person):
        raise Unauthenticated("Log in, or send Authorization: Bearer <service token>.")
    if request.method not in {"GET", "HEAD"} and check_csrf(request) is not None:
        raise Forbidden("Send the page's CSRF token as X-CSRFToken.", code="csrf")
    return actor_of_person(request.user, **who)


def _refuse_nul(request: HttpRequest) -> None:
    """Postgres holds no NUL, so no name and no filter can have one: 400, naming each field."""
    fields = ["path"] if "\x00" in request.path else []
    fields += [k for k, values in request.GET.lists() if any("\x00" in v for v in (k, *values))]
    if fields:
        said = "NUL is in no name and in no text that is stored"
        faults = [{"field": field.replace("\x00", ""), "message": said} for field in fields]
        raise Problem(f"{faults[0]['field']}: {said}.", code="nul", errors=faults)


def admin(request: HttpRequest) -> Actor:
    """The actor, who must be an admin."""
    actor = identify(request)
    actor.must_be(Role.ADMIN, "do this")
    return actor


class StrictParser(Parser):
    """JSON as RFC 8259 has it: no NaN, no depth that would break the reader."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """The decoded body; 400 when it is not a JSON object."""
        try:
            found = json.loads(request.body, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise Problem(f"The body is not JSON: {error}", code="not_json") from error
        if not isinstance(found, dict):
            raise Problem("The body is not a JSON object.", code="not_json")
        return found


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def answer(value: Any, status: int = 200, **headers: str) -> HttpResponse:
    """A JSON answer; strict, so an unknown number is null and never NaN."""
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain)
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    for name, text in headers.items():
        response[name.replace("_", "-")] = text
    return response


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def problem_answer(problem: Problem) -> HttpResponse:
    """A problem document."""
    response = answer(problem.body(), problem.status)
    response["Content-Type"] = "application/problem+json"
    if problem.retry_after_s is not None:
        response["Retry-After"] = str(problem.retry_after_s)
    return response


def no_such_path(request: HttpRequest, path: str = "") -> HttpResponse:
    """For programs: whatever is not served below ``/api`` is a problem document, not a page."""
    said = f"Nothing is served at {request.path}; see /api/v1/openapi.json."
    return problem_answer(Problem(said, code="not_found", status=404))


class MethodNotAllowedAsProblem:
    """Middleware: Django and the library say 405 in plain text; below ``/api`` it is a problem."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer, with its ``Allow`` kept."""
        response = self._get_response(request)
        if response.status_code != 405 or not request.path.startswith("/api/"):
            return response
        allowed = ", ".join(sorted(part.strip() for part in response["Allow"].split(",")))
        said = f"{request.method} is not possible here; {allowed} is."
        problem = problem_answer(Problem(said, code="method_not_allowed", status=405))
        problem["Allow"] = allowed
        return problem


def install_errors(api: NinjaAPI) -> None:
    """The one place where errors of the people's API become answers."""

    @api.exception_handler(Problem)
    def _problem(request: HttpRequest, error: Problem) -> HttpResponse:
        for fault in error.errors:
            field, fault["field"] = fault["field"], _spelled(request, fault["field"])
            said = f"{field}: {fault['message']}"
            leaf = camel(field.rpartition(".")[2])
            fault["message"] = _camel_words(fault["message"])
            error.detail = error.detail.replace(said, f"{fault['field']}: {fault['message']}")
            error.detail = error.detail.replace(f" {snake(leaf)} is ", f" {leaf} is ")
        return problem_answer(error)

    @api.exception_handler(ValidationError)
    def _validation(request: HttpRequest, error: ValidationError) -> HttpResponse:
        faults = [_fault(request, item) for item in error.errors]
        said = "; ".join(f"{f['field']}: {f['message']}" for f in faults)
        return problem_answer(InvalidInput(said, errors=faults))

    @api.exception_handler(RequestDataTooBig)
    def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return problem_answer(TooLarge(f"The body is larger than {limit} bytes."))

    @api.exception_handler(Http404)
    def _not_found(request: HttpRequest, error: Http404) -> HttpResponse:
        return problem_answer(Problem("No such path.", code="not_found", status=404))

    @api.exception_handler(HttpError)
    def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
        # The library hides what its parser (ours, above) said behind an error of its own.
        if isinstance(error.__cause__, Problem):
            return problem_answer(error.__cause__)
        return problem_answer(Problem(str(error), status=error.status_code))

    @api.exception_handler(InterfaceError)
    @api.exception_handler(InternalError)
    @api.exception_handler(OperationalError)
    def _away(request: HttpRequest, error: DatabaseError) -> HttpResponse:
        if isinstance(error, InternalError) and not isinstance(error.__cause__, AWAY):
            return _surprise(request, error)
        log.warning("%s %s: %s", request.method, request.path, error)
        if is_timeout(error):
            return problem_answer(TooSlow())
        return problem_answer(Busy("Postgres does not answer; try again.", retry_after_s=2))

    @api.exception_handler(Exception)
    def _surprise(request: HttpRequest, error: Exception) -> HttpResponse:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        said = "Something failed here; the log says what."
        return problem_answer(Problem(said, code="internal", status=500))


def _has_spec(request: HttpRequest) -> bool:
    try:
        return "spec" in json.loads(request.body)
    except (ValueError, TypeError, RecursionError):
        return False


def _spelled(request: HttpRequest, field: str) -> str:
    """A field of an action as the caller spelled it: ``expires_in`` -> ``spec.expiresIn``."""
    if "." in field:
        return field
    name = camel(field)
    if not _has_spec(request):
        return name
    return f"metadata.{_METADATA[field]}" if field in _METADATA else f"spec.{name}"


def _camel_words(message: str) -> str:
    """A message about unknown fields names the known ones as callers write them."""
    if not message.startswith("unknown field"):
        return message
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: camel(word[0]), message)


def _fault(request: HttpRequest, item: dict[str, Any]) -> dict[str, str]:
    """One of pydantic's errors: the place in the body, and what it says."""
    path = [str(part) for part in item["loc"]]
    place, *parts = path
    if place == "body":
        parts = parts[1:]
        if parts[:1] == ["spec"] and not _has_spec(request):
            parts = parts[1:]
    said = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        said = "unknown field"
    return {"field": ".".join(parts) or place, "message": said}


def camel(name: str) -> str:
    """``expires_in`` -> ``expiresIn``."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def snake(name: str) -> str:
    """``expiresIn`` -> ``expires_in``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1].lower(), name)
