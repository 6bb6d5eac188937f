"""The work behind the figures: does it run, is it in time, and what to do if not.

Invariant: a figure that lags, a day that is kept too long or not made in time is told from what is
stored, whatever a log says; the words name since when, which grain, the error, and the next step.
Pure.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from controlplane.reports.background import Work
from controlplane.reports.conditions import Condition

# Beat shows itself every ten seconds; a worker that starts anew takes some of them.
BEAT_LOST = timedelta(minutes=2)
# A run is due every fifteen seconds; one that catches up after an outage takes minutes.
DERIVE_LATE = timedelta(minutes=10)
# Of an installation in which no worker has ever run; it is given time to be set up.
NEVER_DERIVED = timedelta(hours=2)
# A day is dropped by an hourly task, once its last hour is derived.
DROP_LATE = timedelta(hours=3)
DERIVE, PARTITIONS, RETENTION = "telemetry.derive", "telemetry.partitions", "telemetry.retention"


def conditions(work: Work) -> list[Condition]:
    """Each that can be said, in the order in which to look at them."""
    return [
        _working(work),
        _derived(work),
        _dropped(work),
        _ahead(work),
        *_failing(work),
        *_claims(work),
    ]


def faults(work: Work) -> list[Condition]:
    """Those at which somebody has to look."""
    found = conditions(work)
    return [one for one in found if one.status not in (one.well, "Unknown")]


def _working(work: Work) -> Condition:
    if work.beat_at is None:
        words = "no worker has shown itself yet: start worker and beat"
        return Condition("WorkersAlive", "Unknown", "NeverSeen", words)
    if work.at - work.beat_at > BEAT_LOST:
        words = (
            f"nothing is heard of beat or worker since {_at(work.beat_at)}: no figure is derived,"
            " no day is made or dropped; see that worker, beat and broker run"
        )
        return Condition("WorkersAlive", "False", "Silent", words, work.beat_at)
    return Condition("WorkersAlive", "True", "Heard", "beat and worker show themselves")


def _derived(work: Work) -> Condition:
    job = work.job(DERIVE)
    waiting = (
        f"{work.minutes_waiting:,} minutes and {work.hours_waiting:,} hours are to be done again"
    )
    if job.failing_since is not None:
        words = (
            f"figures are not derived since {_at(job.failing_since)}: {job.error}; {waiting}, and"
            " raw events of days that are not derived are kept past their retention. It is tried"
            " every 15 s; the worker's log has the whole error"
        )
        return Condition("FiguresDerived", "False", "DeriveFails", words, job.failing_since)
    since = job.succeeded_at or work.minute
    if work.at - since > (DERIVE_LATE if job.succeeded_at else NEVER_DERIVED):
        words = (
            f"no run that derives figures has ended since {_at(since)}: minutes are derived up to"
            f" {_at(work.minute)}, hours up to {_at(work.hour)}; {waiting}. See that worker and"
            " beat run, and how long a run takes in the worker's log"
        )
        return Condition("FiguresDerived", "False", "Behind", words, since)
    if job.succeeded_at is None:
        return Condition("FiguresDerived", "Unknown", "NeverRun", "nothing was derived yet")
    return Condition(
        "FiguresDerived",
        "True",
        "InTime",
        f"minutes are derived up to {_at(work.minute)}; {waiting}",
    )


def _dropped(work: Work) -> Condition:
    if work.first_day is None:
        return Condition("RetentionKept", "Unknown", "NoDays", "there is no day of raw events")
    days = f"{work.retention_days} days"
    due = _midnight(work.first_day) + timedelta(days=1 + work.retention_days)
    if work.at - due > DROP_LATE:
        why = work.job(PARTITIONS)
        said = f": {why.error}" if why.failing_since else ""
        words = (
            f"raw events of {work.first_day} are kept past their {days}{said}; they wait until"
            " their minutes and hours are derived (FiguresDerived), and the disk fills meanwhile"
        )
        return Condition("RetentionKept", "False", "RawEventsHeld", words, due)
    words = f"raw events are kept from {work.first_day} on, {days}"
    return Condition("RetentionKept", "True", "InTime", words)


def _ahead(work: Work) -> Condition:
    tomorrow = (work.at + timedelta(days=1)).date()
    if work.last_day is None or work.last_day < tomorrow:
        why = work.job(PARTITIONS)
        said = f": {why.error}" if why.failing_since else ""
        last = work.last_day or "none"
        words = (
            f"the last day with a partition is {last}{said}; the first event of a day without one"
            " makes it, and is slower. See that worker and beat run"
        )
        return Condition("DaysAhead", "False", "NotMade", words, why.failing_since)
    words = f"days are there up to {work.last_day}"
    return Condition("DaysAhead", "True", "Made", words)


def _failing(work: Work) -> list[Condition]:
    """Any other job that fails."""
    failing = [job for job in work.jobs if job.failing_since is not None and job.name != DERIVE]
    return [
        Condition(
            "JobsSucceed",
            "False",
            "JobFails",
            f"{job.name} fails since {_at(job.failing_since)}: {job.error}; it is tried again when"
            " it is next due; the worker's log has the whole error",
            job.failing_since,
        )
        for job in failing
        if job.failing_since is not None
    ]


def _claims(work: Work) -> list[Condition]:
    """Each gateway that makes everybody send again; none is as it should be."""
    return [
        Condition(
            "EpochStable",
            "False",
            "ClaimsOfGateway",
            f"{claim.gateway} has had {claim.mints} epochs minted within 24 h and"
            f" {claim.refused} claims refused, the last at {_at(claim.at)}: {claim.why}. Unless"
            " backups were restored, it claims what it was never told: look at its version, or"
            " revoke its token",
            claim.at,
        )
        for claim in work.claims
    ]


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
