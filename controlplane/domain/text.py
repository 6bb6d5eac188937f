"""Characters that a reader does not see, or that move the ones around them.

Invariant: what is stored as a person's words reads on every screen, terminal and export in the
order in which it was stored: nothing in it turns text around (U+202E and its kind), clears a line
or hides words. Free text loses such characters, since nobody could find them to take them out;
a name that holds one is refused, since without it it would name something else. Pure.
"""

from __future__ import annotations

import re
import unicodedata

# Joiners that scripts and emoji need, and Arabic signs that are format characters and visible.
_KEPT = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029]")


def readable(text: str) -> str:
    """Free text without what cannot be seen; its lines stay lines, a tab is a space."""
    lines = _LINE_ENDS.sub("\n", text).replace("\t", " ")
    return "".join(c for c in lines if c == "\n" or not _is_hidden(c)).strip()


def hidden_character(name: str) -> str | None:
    """The first character of a name that a reader would not see, as ``U+202E``."""
    for char in name:
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp"):
            return f"U+{ord(char):04X}"
    return None


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf") and char not in _KEPT
