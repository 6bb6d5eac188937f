"""What the person who started everything reads: one line for each thing done, with its time.

Invariant: a lost terminal (a closed pipe) never stops the product, and nothing secret is printed
but the admin's password at the very end. Times are seconds since the start.
"""

import sys
import time


class Console:
    """Prints lines as `[ 12.3s] text`; `plain` prints without the time."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """One line, continued lines indented below it."""
        stamp = f"[{self.elapsed():6.1f}s] "
        self.plain(stamp + text.replace("\n", "\n" + " " * len(stamp)))

    def plain(self, text: str) -> None:
        """Text as it is."""
        try:
            print(text, flush=True)
        except (BrokenPipeError, OSError):
            # The terminal is gone; SIGHUP, if it comes, decides whether we go too.
            sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115
