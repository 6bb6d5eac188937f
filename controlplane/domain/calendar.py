"""ISO weeks in a time zone: which instants a week holds, and which week an instant lies in.

Invariant: a week is seven local calendar days, never seven times 24 hours, so the two weeks in
which clocks change last 167 and 169 hours; instants are aware UTC, and the weeks of one zone follow
each other without a gap or an overlap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FIRST_YEAR, LAST_YEAR = 2000, 2199
_WRITTEN = re.compile(r"([0-9]{4})-W([0-9]{2})\Z")
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*\Z")


class CalendarError(ValueError):
    """A week or a zone that does not exist; the message says what to write."""


def zone_named(name: str) -> ZoneInfo:
    """The IANA zone of that name. ``CalendarError`` names it when it is not one."""
    try:
        # ZoneInfo takes its argument for a path below the zones: only names may reach it.
        if len(name) <= 64 and _ZONE_NAME.match(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise CalendarError(
        f"{name[:64]!r} is not a time zone: write an IANA name such as Europe/London or UTC"
    )


@dataclass(frozen=True, slots=True, order=True)
class Week:
    """One ISO 8601 week, by its ISO year (not always the calendar's year) and number."""

    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04d}-W{self.number:02d}"

    @classmethod
    def parse(cls, text: str) -> Week:
        """``2026-W48``. ``CalendarError`` for another form or for a week that the year lacks."""
        found = _WRITTEN.match(text)
        if found is None:
            raise CalendarError(f"{text[:20]!r} is not a week: write it like 2026-W48")
        week = cls(int(found[1]), int(found[2]))
        if not FIRST_YEAR <= week.year <= LAST_YEAR:
            raise CalendarError(f"{text} is out of range: years {FIRST_YEAR} to {LAST_YEAR}")
        try:
            week.monday()
        except ValueError:
            last = date(week.year, 12, 28).isocalendar().week
            raise CalendarError(
                f"{text} does not exist: {week.year} has weeks 01 to {last}"
            ) from None
        return week

    @classmethod
    def of_day(cls, day: date) -> Week:
        """The week that a calendar day lies in."""
        year, number, _ = day.isocalendar()
        return cls(year, number)

    @classmethod
    def of(cls, at: datetime, zone: ZoneInfo) -> Week:
        """The week that an instant lies in by that zone's calendar."""
        return cls.of_day(at.astimezone(zone).date())

    def monday(self) -> date:
        """Its first day."""
        return date.fromisocalendar(self.year, self.number, 1)

    def shifted(self, weeks: int) -> Week:
        """The week so many weeks later; earlier if negative."""
        return Week.of_day(self.monday() + timedelta(weeks=weeks))

    def midnights(self, zone: ZoneInfo) -> tuple[datetime, ...]:
        """The eight UTC instants at which its days, and then the next week, begin."""
        monday = self.monday()
        return tuple(_begin_of(monday + timedelta(days=day), zone) for day in range(8))

    def bounds(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """The half-open range of UTC instants that it holds."""
        midnights = self.midnights(zone)
        return midnights[0], midnights[-1]

    def hours(self, zone: ZoneInfo) -> float:
        """How many hours it lasts: 168 but for the weeks in which clocks change."""
        start, end = self.bounds(zone)
        return (end - start) / timedelta(hours=1)


def last_finished(now: datetime, zone: ZoneInfo) -> Week:
    """The newest week that is over at ``now``."""
    return Week.of(now, zone).shifted(-1)


def hour_of(at: datetime) -> datetime:
    """The UTC hour that an instant lies in: two local hours of one name stay two."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hour_label(at: datetime, zone: ZoneInfo) -> str:
    """A local time with its offset, which tells two hours of one name apart: ``01:00+01:00``."""
    return at.astimezone(zone).isoformat(timespec="minutes")[11:]


def _begin_of(day: date, zone: ZoneInfo) -> datetime:
    # A midnight that the clocks skip reads as the instant of the change, where the day does begin.
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)
