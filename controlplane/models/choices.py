"""Django's choices, with the types that they have: a choice is an enum that is its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enum import StrEnum
    from typing import ClassVar

    class TextChoices(StrEnum):
        """Written ``NAME = "value", "label"``."""

        choices: ClassVar[list[tuple[str, str]]]
        values: ClassVar[list[str]]

else:
    from django.db.models import TextChoices

__all__ = ["TextChoices"]
