"""Logging in and out.

Invariant: the throttle of ``actions.signin`` is asked for every try; a wrong name and a wrong
password read the same; after log-in the session has a new key and ``next`` stays on this host.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.actions.signin import DEVICE_COOKIE, DEVICE_DAYS, sign_in
from controlplane.errors import Problem
from dashboard.views.page import address_of


def _next(request: HttpRequest) -> str:
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    inside = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if inside else resolve_url(settings.LOGIN_REDIRECT_URL)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters("password")
def log_in(request: HttpRequest) -> HttpResponse:
    """The log-in form."""
    if request.method != "POST":
        if request.user.is_authenticated:
            return HttpResponseRedirect(_next(request))
        return _form(request)
    name = request.POST.get("username", "")
    try:
        signed = sign_in(
            name=name,
            password=request.POST.get("password", ""),
            address=address_of(request),
            device=request.COOKIES.get(DEVICE_COOKIE),
            now=timezone.now(),
        )
    except Problem as problem:
        answer = _form(request, name=name, fault=problem.detail, status=problem.status)
        if problem.retry_after_s is not None:
            answer["Retry-After"] = str(problem.retry_after_s)
        return answer
    login(request, signed.person)
    answer = HttpResponseRedirect(_next(request))
    answer.set_cookie(
        DEVICE_COOKIE,
        signed.device,
        max_age=DEVICE_DAYS * 86400,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )
    return answer


def _form(request: HttpRequest, name: str = "", fault: str = "", status: int = 200) -> HttpResponse:
    context = {"name": name, "fault": fault, "next": _next(request)}
    return render(request, "pages/log_in.html", context, status=status)


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """End the session; open sockets of it close within seconds."""
    logout(request)
    return HttpResponseRedirect(resolve_url(settings.LOGOUT_REDIRECT_URL))
