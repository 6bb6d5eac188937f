"""``manage.py seed_history``: past weeks reported by simulated gateways through the real door.

Invariants: what is seeded is marked, its gateways carry the label ``simulated=true`` and no gateway
without it is ever written to; a second run changes nothing; the gateways run in a process of their
own that knows an address and a token, and their tokens end with the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from controlplane import env
from controlplane.actions import gateways, prices
from controlplane.actions.actor import SYSTEM
from controlplane.domain.calendar import Week, last_finished, zone_named
from controlplane.ingest.partitions import ensure_range_now
from controlplane.local.ports import free_port
from controlplane.models import Gateway, GatewayToken

NAMES = ("simulated-a", "simulated-b")
LABELS = {"simulated": "true"}
TASKS_PER_WEEK = 50_000
_STORED = """
SELECT coalesce(sum(r.stored), 0) FROM receipt r JOIN gateway g ON g.id = r.gateway_id
WHERE g.name = ANY(%s)
"""
_TOKEN_LASTS = timedelta(hours=2)
_START_SECONDS = 30.0


class Command(BaseCommand):
    """Seed simulated history."""

    help = "Report finished weeks of simulated traffic (about 50,000 tasks each), marked as such"

    def add_arguments(self, parser: CommandParser) -> None:
        """How much, and where to."""
        parser.add_argument("--weeks", type=int, default=4, help="finished weeks, newest last (4)")
        parser.add_argument(
            "--tasks-per-week",
            type=int,
            default=TASKS_PER_WEEK,
            help=f"({TASKS_PER_WEEK:,}); another number is another history, added to the first",
        )
        parser.add_argument(
            "--url",
            default=env.text("SWITCHGEAR_URL", f"http://127.0.0.1:{settings.PORT}"),
            help="a control plane on this database; if none answers, one is run for the while",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make gateways and tokens, run the reporters, end the tokens, say what was stored."""
        now = datetime.now(UTC)
        weeks = _weeks(options["weeks"], now)
        if options["tasks_per_week"] < 1:
            raise CommandError("--tasks-per-week: write a number from 1")
        for line in prices.seed(now):
            self.stdout.write(f"added {line}")
        _make_days(weeks)
        began, before = time.monotonic(), _stored()
        with _tokens(now) as tokens, self._door(options["url"]) as url:
            order = {
                "url": url,
                "zone": settings.REPORT_ZONE,
                "weeks": [str(week) for week in weeks],
                "tasks_per_week": options["tasks_per_week"],
                "gateways": [{"name": n, "token": t} for n, t in tokens.items()],
            }
            sums = self._report(order)
        self.stdout.write(
            f"{sums['tasks']:,} simulated tasks of {weeks[0]} to {weeks[-1]}:"
            f" {sums['events']:,} events in {time.monotonic() - began:.0f} s,"
            f" {_stored() - before:,} of them new"
        )
        self.stdout.write(f"see /report?week={weeks[-1]}")

    @contextlib.contextmanager
    def _door(self, url: str) -> Iterator[str]:
        """The running control plane's address, or that of a private one for the while."""
        if _answers(url):
            yield url
            return
        self.stdout.write(f"nothing answers at {url}: running a web process for the while")
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
        command += ["--no-access-log", "--timeout-graceful-shutdown", "3"]
        process = subprocess.Popen(command, cwd=settings.BASE_DIR)
        try:
            own = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + _START_SECONDS
            while not _answers(own):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise CommandError("the web process did not start; its output is above")
                time.sleep(0.1)
            yield own
        finally:
            process.terminate()
            process.wait()

    def _report(self, order: dict[str, Any]) -> dict[str, int]:
        """Run the gateways' process; its lines are progress, its last one the sums."""
        # Nothing of ours but the order: the child is a gateway and needs no secret of this plane.
        ours = ("SWITCHGEAR_", "DATABASE_URL", "BROKER_URL", "DJANGO_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        last = ""
        with subprocess.Popen(
            [sys.executable, "-m", "gateway.history"],
            cwd=settings.BASE_DIR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                # One that has gone has said why on its own stderr.
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.write(json.dumps(order) + "\n")
                    child.stdin.close()
                for line in child.stdout:
                    if last:
                        self.stdout.write(last.rstrip())
                    last = line
            except BaseException:
                child.terminate()
                raise
        if child.returncode != 0:
            raise CommandError(
                f"the simulated gateways stopped (see above). Is {order['url']} a control plane"
                " on this database? Run this again: what is stored already is not stored twice."
            )
        found: dict[str, int] = json.loads(last)
        return found


def _weeks(count: int, now: datetime) -> list[Week]:
    """The newest finished weeks, oldest first. ``CommandError`` beyond raw retention."""
    zone = zone_named(settings.REPORT_ZONE)
    newest = last_finished(now, zone)
    # An hour's room, so that no event passes the edge while the run lasts.
    oldest_kept = now - timedelta(days=settings.RAW_RETENTION_DAYS) + timedelta(hours=1)
    most = 0
    while newest.shifted(-most).bounds(zone)[0] >= oldest_kept:
        most += 1
    if not 1 <= count <= most:
        raise CommandError(
            f"--weeks {count}: raw events are kept {settings.RAW_RETENTION_DAYS} days"
            f" (SWITCHGEAR_RAW_RETENTION_DAYS), which hold {most} finished weeks today:"
            f" write 1 to {most}"
        )
    return [newest.shifted(-back) for back in reversed(range(count))]


def _make_days(weeks: list[Week]) -> None:
    """Have the partitions ready: a batch that has to make one keeps its lane from live gateways."""
    zone = zone_named(settings.REPORT_ZONE)
    # A task that begins in a week may end within the hour after it.
    first, last = weeks[0].bounds(zone)[0], weeks[-1].bounds(zone)[1] + timedelta(hours=1)
    connection.ensure_connection()
    ensure_range_now(
        connection.connection, first.astimezone(UTC).date(), last.astimezone(UTC).date()
    )


@contextlib.contextmanager
def _tokens(now: datetime) -> Iterator[dict[str, str]]:
    """A token for each simulated gateway, made if need be; revoked at the end."""
    for name in NAMES:
        row = Gateway.objects.filter(name=name).first()
        if row is not None and row.labels.get("simulated") != "true":
            raise CommandError(
                f"gateway {name} exists and is not labelled simulated=true: nothing was sent"
            )
    tokens = {}
    for name in NAMES:
        if not Gateway.objects.filter(name=name).exists():
            gateways.create(actor=SYSTEM, name=name, labels=LABELS, now=now)
            _revoke(name, now)
        expires_at = now + _TOKEN_LASTS
        issued = gateways.issue_token(actor=SYSTEM, name=name, now=now, expires_at=expires_at)
        tokens[name] = issued.token
    try:
        yield tokens
    finally:
        for name in NAMES:
            _revoke(name, datetime.now(UTC))


def _revoke(name: str, now: datetime) -> None:
    for token in GatewayToken.objects.filter(gateway__name=name, revoked_at=None):
        gateways.revoke_token(actor=SYSTEM, name=name, token_id=token.pk, now=now)


def _stored() -> int:
    """How many events of the simulated gateways were ever stored, by their receipts."""
    # A batch that comes again is answered by its first receipt, so answers cannot be added up.
    with connection.cursor() as cursor:
        cursor.execute(_STORED, [list(NAMES)])
        (found,) = cursor.fetchone()
    return int(found)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False
