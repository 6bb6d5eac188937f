"""``python -m gateway.check_fallback ROUTE --config gateway.toml``: test a route's targets.

Makes real calls with the file's keys, then prints each target's record of approval as it is to
stand in the file, or in a Route. Invariant: the record names the features that were seen to work
just now and nothing else as tested; a target that failed a test, or for which nobody puts down
a name, is printed as not approved, and so is never used. Regions, mechanism and days of retention
cannot be tested: they are what ``--processing-region`` and its like say, else what the file says.

Exit status: 0 every test passed, 1 one failed, 2 the file or the route cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.config import Config, Route, Target
from gateway.config_file import ConfigError, load
from gateway.fallback_tests import Result, Trial
from gateway.loop import run
from gateway.upstream import Upstream


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _options(arguments)
    try:
        config = load(options.config)
    except ConfigError as error:
        print(f"check_fallback: {options.config}: {error}", file=sys.stderr)
        return 2
    route = next((one for one in config.routes if one.name == options.route), None)
    if route is None:
        known = ", ".join(sorted(one.name for one in config.routes)) or "none"
        print(f"check_fallback: no route {options.route!r}; known: {known}", file=sys.stderr)
        return 2
    tried: list[tuple[Target, list[Result]]] = []
    run(_try_all(config, route, options.context_tokens, tried))
    now = datetime.now(UTC).replace(microsecond=0)
    records = [_record(target, results, options, now) for target, results in tried]
    if options.json:
        print(json.dumps({"route": route.name, "targets": records}, default=str, indent=2))
    else:
        _print(route, tried, records)
    return 0 if all(result.passed for _, results in tried for result in results) else 1


async def _try_all(
    config: Config, route: Route, tokens: int, tried: list[tuple[Target, list[Result]]]
) -> None:
    upstream = Upstream(config)
    await upstream.start()
    try:
        for target in route.targets:
            provider = upstream.providers[target.circuit.provider]
            trial = Trial(upstream, target, provider, route.attempt_seconds)
            tried.append((target, await trial.run(tokens)))
    finally:
        await upstream.close()


def _record(
    target: Target, results: list[Result], options: argparse.Namespace, now: datetime
) -> dict[str, Any]:
    """A target's record, by the names that file and wire give its fields."""
    was = target.record
    approved = bool(options.approved_by) and all(result.passed for result in results)
    retention = was.retention_days if options.retention_days is None else options.retention_days
    return {
        **target.circuit._asdict(),
        "approved": approved,
        "approved_by": options.approved_by if approved else "",
        "approved_at": now if approved else None,
        "approved_until": now + timedelta(days=options.days) if approved else None,
        "features": [result.feature for result in results if result.passed],
        "processing_regions": options.processing_region or list(was.processing_regions),
        "transfer_mechanism": options.transfer_mechanism or was.transfer_mechanism,
        "retention_days": retention,
        "tests": [asdict(result) for result in results],
    }


def _print(
    route: Route, tried: list[tuple[Target, list[Result]]], records: list[dict[str, Any]]
) -> None:
    for (target, results), record in zip(tried, records, strict=True):
        print(f"# route {route.name}, target {target.circuit}")
        for result in results:
            print(f"#   {'pass' if result.passed else 'FAIL'}  {result.feature}: {result.detail}")
        if not record["approved"]:
            failed = any(not result.passed for result in results)
            why = "a test failed" if failed else "say who approves it: --approved-by NAME"
            print(f"# not approved: {why}")
        print("[[routes.targets]]")
        for name, value in record.items():
            if name != "tests" and value is not None:
                print(f"{name} = {_toml(value)}")
        print()


def _toml(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    # What JSON and TOML write alike: texts, whole numbers, true and false, lists of texts.
    return json.dumps(value, ensure_ascii=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gateway.check_fallback",
        description="Test the targets of a route and print the record of their approval.",
    )
    parser.add_argument("route", metavar="ROUTE")
    parser.add_argument("--config", type=Path, default=Path("gateway.toml"))
    parser.add_argument("--approved-by", default="", metavar="NAME", help="who approves")
    parser.add_argument("--days", type=int, default=90, help="until the approval expires")
    parser.add_argument("--context-tokens", type=int, default=8000, metavar="N")
    parser.add_argument("--processing-region", action="append", default=[], metavar="REGION")
    parser.add_argument("--transfer-mechanism", default="", metavar="TEXT")
    parser.add_argument("--retention-days", type=int, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    for name in ("days", "context_tokens"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
