"""``manage.py verify_audit``: was anything in the audit changed, taken out or slipped in?"""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.reports.audit_chain import Head, read

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


class Command(BaseCommand):
    """Says which entries do not fit their links; the exit status is then 1."""

    help = "Check the hash chain over the audit, and print its newest link to be kept elsewhere."

    def add_arguments(self, parser: CommandParser) -> None:
        """A head that an earlier run has printed."""
        parser.add_argument("--kept", type=_head, help="SEQ:HASH that an earlier run has printed")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run and report."""
        chain = read(options["kept"])
        for fault in chain.faults:
            self.stderr.write(fault)
        if chain.faults:
            raise CommandError(
                f"The audit is not as it was written: {len(chain.faults)} faults, named above."
            )
        self.stdout.write(f"The audit is as it was written: {chain.head.seq} entries.")
        self.stdout.write(f"Keep this elsewhere, for --kept of the next run: {chain.head}")


def _head(text: str) -> Head:
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise CommandError(f"{text!r}: write SEQ:HASH as an earlier run has printed it.")
    return Head(int(match[1]), match[2])
