"""People: who may log in, and with which role. Admins only.

Invariant: there is always an active admin left; whoever loses an account or a role loses it at
their next request, because both are read anew each time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from controlplane.actions._commit import recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.errors import Conflict, NotFound
from controlplane.models import Person, Role


def create(*, actor: Actor, name: str, password: str, role: str, now: datetime) -> Person:
    """Make an account. ``Conflict`` when the name is taken, in any spelling."""
    actor.must_be(Role.ADMIN, "create an account")
    faults = Faults()
    written = faults.gateway_name("name", name)
    _check_role(role, faults)
    _check_password(password, faults)
    faults.raise_any("The account was not created")
    with recorded_change(actor, now) as change:
        if Person.objects.filter(username__iexact=written).exists():
            raise Conflict(f"An account is named {written} already.")
        person = Person.objects.create_user(username=written, password=password, role=role)
        change.audit("create", "Person", written, after={"role": role})
    return person


def update(
    *,
    actor: Actor,
    name: str,
    now: datetime,
    role: str | None = None,
    active: bool | None = None,
    password: str | None = None,
) -> Person:
    """Change a role, switch an account on or off, or set a password. None leaves it as it is."""
    actor.must_be(Role.ADMIN, "change an account")
    faults = Faults()
    if role is not None:
        _check_role(role, faults)
    if password is not None:
        _check_password(password, faults)
    faults.raise_any("The account was not changed")
    with recorded_change(actor, now) as change:
        # All admins are held, so that two of them cannot demote each other at once.
        list(Person.objects.select_for_update().filter(role=Role.ADMIN).order_by("id"))
        person = Person.objects.select_for_update().filter(username=name).first()
        if person is None:
            raise NotFound(f"No account is named {name!r}.")
        before = _described(person)
        person.role = role if role is not None else person.role
        person.is_active = active if active is not None else person.is_active
        if password is not None:
            person.set_password(password)
        person.save()
        admins = Person.objects.filter(role=Role.ADMIN, is_active=True)
        if before == {"role": Role.ADMIN, "active": True} and not admins.exists():
            raise Conflict("This would leave no active admin.", code="last_admin")
        after = _described(person) | ({"password": "set"} if password is not None else {})
        if after != before:
            change.audit("update", "Person", name, before=before, after=after)
    return person


def _described(person: Person) -> dict[str, Any]:
    return {"role": str(person.role), "active": person.is_active}


def _check_role(role: str, faults: Faults) -> None:
    if role not in Role.values:
        faults.add("role", f"write one of {', '.join(Role.values)}")


def _check_password(password: str, faults: Faults) -> None:
    if "\x00" in password or len(password) > 1000:
        faults.add("password", "write at most 1000 characters without NUL")
        return
    try:
        validate_password(password)
    except ValidationError as error:
        faults.add("password", " ".join(error.messages))
