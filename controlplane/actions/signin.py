"""Who may log in, and how often one may guess.

Invariant: a guess is counted before the password is looked at, so parallel guesses are not free. An
account and an address (of IPv6 its /64) have a bucket each; a browser in which that person has
logged in before has its own, so that nobody can lock out the person on call by guessing at their
name.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from django.contrib.auth import authenticate
from django.core import signing
from django.db import connection

from controlplane.errors import Problem, Unauthenticated
from controlplane.models import Person

WINDOW: Final = timedelta(minutes=15)
ACCOUNT_TRIES: Final = 5
ADDRESS_TRIES: Final = 50
DEVICE_TRIES: Final = 10
DEVICE_COOKIE: Final = "switchgear_device"
DEVICE_DAYS: Final = 90
_SALT = "switchgear.device"
_WITH_PORT = re.compile(r"\[(?P<v6>[^\]]+)\](?::\d*)?|(?P<v4>[0-9.]+):\d*")

_COUNT = """
INSERT INTO sign_in_tries AS t (bucket, tries, window_began_at) VALUES (%(bucket)s, 1, %(now)s)
ON CONFLICT (bucket) DO UPDATE SET
    tries = CASE WHEN t.window_began_at <= %(old)s THEN 1 ELSE t.tries + 1 END,
    window_began_at = CASE WHEN t.window_began_at <= %(old)s THEN %(now)s ELSE t.window_began_at END
RETURNING tries, window_began_at
"""


class SignedIn(NamedTuple):
    """Who logged in, and the value of ``DEVICE_COOKIE`` to set for ``DEVICE_DAYS``."""

    person: Person
    device: str


def sign_in(
    *, name: str, password: str, address: str, device: str | None, now: datetime
) -> SignedIn:
    """The person, if the password is right and guesses are left.

    ``device`` is the cookie's value as it came. Raises ``Unauthenticated`` (the same text whether
    the name or the password is wrong) or a 429 ``Problem`` with the seconds to wait.
    """
    name = name.strip()[:200].replace("\x00", "")
    known = _device_of(device, name)
    buckets = {f"device:{known}": DEVICE_TRIES} if known else _buckets(name, address)
    _count(buckets, now)
    person = authenticate(username=name, password=password.replace("\x00", ""))
    if not isinstance(person, Person):
        raise Unauthenticated("The name or the password is wrong.", code="wrong_password")
    _give_back(buckets)
    return SignedIn(person, _device_cookie(known or secrets.token_hex(16), person))


def client_address(remote: str, forwarded_for: str, trusted_proxies: int) -> str:
    """The caller's address: counted from the right by the proxies that are ours.

    What stands further left in ``X-Forwarded-For`` was written by the caller and is worth nothing.
    """
    if trusted_proxies < 1:
        return remote
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    return _without_port(hops[-min(trusted_proxies, len(hops))])[:64] if hops else remote


def _without_port(hop: str) -> str:
    """Some proxies write the caller's port too, which is another with each connection."""
    found = _WITH_PORT.fullmatch(hop)
    return (found["v6"] or found["v4"]) if found else hop


def _buckets(name: str, address: str) -> Mapping[str, int]:
    return {f"account:{name.lower()}": ACCOUNT_TRIES, f"address:{_block(address)}": ADDRESS_TRIES}


def _block(address: str) -> str:
    """What one caller can choose addresses from: of IPv6 a whole /64, which every host is given."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64)) + "/64"


def _count(buckets: Mapping[str, int], now: datetime) -> None:
    wait = timedelta(0)
    with connection.cursor() as cursor:
        for bucket, limit in sorted(buckets.items()):
            cursor.execute(_COUNT, {"bucket": bucket, "now": now, "old": now - WINDOW})
            tries, began = cursor.fetchone()
            if tries > limit:
                wait = max(wait, began + WINDOW - now)
    if wait:
        seconds = max(1, int(wait.total_seconds()))
        raise Problem(
            f"Too many wrong passwords; try again in {seconds // 60 + 1} min, or in a browser"
            " where you have logged in before.",
            code="too_many_tries",
            status=429,
            retry_after_s=seconds,
        )


def _give_back(buckets: Mapping[str, int]) -> None:
    """A right password empties the person's own bucket and returns the address's one try."""
    with connection.cursor() as cursor:
        for bucket in sorted(buckets):
            if bucket.startswith("address:"):
                cursor.execute(
                    "UPDATE sign_in_tries SET tries = GREATEST(tries - 1, 0) WHERE bucket = %s",
                    (bucket,),
                )
            else:
                cursor.execute("DELETE FROM sign_in_tries WHERE bucket = %s", (bucket,))


def _device_cookie(device: str, person: Person) -> str:
    return signing.dumps([device, person.get_username().lower()], salt=_SALT)


def _device_of(cookie: str | None, name: str) -> str:
    """The id of a browser in which ``name`` has logged in before; '' otherwise."""
    if not cookie:
        return ""
    try:
        device, owner = signing.loads(cookie, salt=_SALT, max_age=timedelta(days=DEVICE_DAYS))
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return str(device) if owner == name.lower() else ""
