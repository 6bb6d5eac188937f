"""Django's settings; every value that a deployment may change comes from the environment.

Invariant: nothing here is secret, and production differs from a laptop by environment alone.
``docs/operating.md`` lists each variable.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from controlplane import env

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env.text("SWITCHGEAR_VAR", str(BASE_DIR / "var"))).absolute()

DEBUG = False
SECRET_KEY = env.secret("SWITCHGEAR_SECRET_KEY")
PORT = env.number("SWITCHGEAR_PORT", 8000, low=1, high=65535)
ALLOWED_HOSTS = env.names("SWITCHGEAR_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.names("SWITCHGEAR_TRUSTED_ORIGINS", "")
HTTPS = env.flag("SWITCHGEAR_HTTPS", False)
# How many proxies of ours stand in front: the caller's address is counted from the right by them.
TRUSTED_PROXIES = env.number("SWITCHGEAR_TRUSTED_PROXIES", 0, low=0, high=10)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "controlplane",
    "dashboard",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # The wall of 200 circuits is 490 kB of text, 19 kB of it news. Behind WhiteNoise, which has its
    # own compressed files; Django pads each answer by a random length against BREACH.
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.api.door.MethodNotAllowedAsProblem",
    "dashboard.away.DatabaseAway",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# Postgres. The time limits keep one stuck statement from holding the fleet's writes (design 6).
# A web process runs each request in a thread of its own, and with it a connection that Django keeps
# is lost: 100 requests in a row used up all that Postgres has. So such a process has a pool (asgi).
DATABASE_POOL = env.number("SWITCHGEAR_DATABASE_POOL", 0, low=0, high=1000)
_POOL = {"min_size": 1, "max_size": DATABASE_POOL, "timeout": 5, "reconnect_timeout": 2}
# Reports are long statements of small results: a server that compiles such (jit) takes longer over
# it than they run.
_OPTIONS = {
    "connect_timeout": 5,
    "options": "-c idle_in_transaction_session_timeout=5000"
    " -c lock_timeout=2000 -c statement_timeout=30000 -c timezone=UTC -c jit=off",
}
DATABASES: dict[str, dict[str, Any]] = {
    "default": env.database("DATABASE_URL")
    | {
        "CONN_MAX_AGE": 0 if DATABASE_POOL else 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": _OPTIONS | ({"pool": _POOL} if DATABASE_POOL else {}),
    }
}
# The role that owns the audit, which nothing but `manage.py migrate` connects as.
if env.text("DATABASE_OWNER_URL", ""):
    DATABASES["owner"] = env.database("DATABASE_OWNER_URL") | {"OPTIONS": _OPTIONS}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
RAW_RETENTION_DAYS = env.number("SWITCHGEAR_RAW_RETENTION_DAYS", 35, low=8, high=400)

# Overrides of every gateway or every provider wait for a second operator (actions.approvals).
TWO_PERSON = env.flag("SWITCHGEAR_TWO_PERSON", False)

AUTH_USER_MODEL = "controlplane.Person"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "wall"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Cookies ignore the port, so two planes on one host must not share names.
SESSION_COOKIE_NAME = f"switchgear_session_{PORT}"
CSRF_COOKIE_NAME = f"switchgear_csrf_{PORT}"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
REPORT_ZONE = env.zone("SWITCHGEAR_REPORT_ZONE", "Europe/London")

STATIC_URL = "/static/"
STATIC_ROOT = Path(env.text("SWITCHGEAR_STATIC", str(VAR_DIR / "static")))
STATICFILES_FINDERS = ["dashboard.static_files.Finder"]
TESTING = "pytest" in sys.modules
STORAGES = {
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if TESTING
        else "dashboard.static_files.HashedFiles"
    },
}
WHITENOISE_USE_FINDERS = TESTING

BROKER_URL = env.text("BROKER_URL", "")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.level("SWITCHGEAR_LOG_LEVEL", "INFO")},
}
