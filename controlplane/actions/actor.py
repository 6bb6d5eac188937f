"""Who does something, and may they? Checked in every action, not only at the door.

Invariant: an actor's role is read anew for each request; a disabled person or an expired token
never becomes an actor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controlplane.errors import Forbidden
from controlplane.models import Person, Role, ServiceToken

Kind = Literal["person", "service", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """One caller of one action. ``address`` and ``request_id`` go into the audit."""

    name: str
    kind: Kind
    role: Role
    address: str = ""
    request_id: str = ""

    def must_be(self, role: Role, to: str) -> None:
        """``Forbidden`` that says what is needed ``to`` do what, unless the role includes it."""
        if not self.role.includes(role):
            raise Forbidden(
                f"{self.name} is {self.role.value}; it takes {role.value} to {to}.",
                needed=role.value,
                role=self.role.value,
            )


SYSTEM = Actor("system", "system", Role.ADMIN)


def actor_of_person(person: Person, *, address: str = "", request_id: str = "") -> Actor:
    """The actor of a logged-in person."""
    if not person.is_active:
        raise Forbidden(f"The account of {person.get_username()} is switched off.")
    return Actor(person.get_username(), "person", Role(person.role), address, request_id)


def actor_of_token(token: ServiceToken, *, address: str = "", request_id: str = "") -> Actor:
    """The actor of a service token that the door found valid."""
    return Actor(f"token:{token.name}", "service", Role(token.role), address, request_id)
