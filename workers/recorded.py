"""A background job whose end is written down: it succeeded, or since when it fails and of what.

Invariant: what a job raises is raised on; a note that cannot be written changes nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg
from celery import shared_task
from django.db import Error, connection

from controlplane.models import jobs

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)


def postgres() -> psycopg.Connection:
    """This thread's own psycopg connection, which commits each statement."""
    connection.ensure_connection()
    own: psycopg.Connection = connection.connection
    return own


def job(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A Celery task of this name whose every end is noted."""

    def decorate(run: Callable[P, T]) -> Callable[P, T]:
        @wraps(run)
        def noted(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                done = run(*args, **kwargs)
            except Exception as error:
                _note(lambda conn, why=error: jobs.failed(conn, name, why))  # type: ignore[misc]
                raise
            _note(lambda conn: jobs.succeeded(conn, name))
            return done

        task: Callable[P, T] = shared_task(name=name)(noted)
        return task

    return decorate


def _note(write: Callable[[Any], None]) -> None:
    try:
        write(postgres())
    except (psycopg.Error, Error) as error:
        log.warning("what became of a job is not noted: %s", error)
