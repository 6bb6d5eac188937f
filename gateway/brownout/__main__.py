"""``python -m gateway.brownout``: a 40-minute provider brownout under several policies.

Prints a table, or with ``--json`` one JSON object with minutes and transitions, from which
``manage.py brownout_page`` draws a page. ``--calibrate`` finds the model's free numbers again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from gateway.brownout import calibration
from gateway.brownout.model import CALIBRATED, Model
from gateway.brownout.policies import ALWAYS, POLICIES
from gateway.brownout.replay import replay
from gateway.brownout.table import document, text
from gateway.brownout.tally import Tally


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for. An unknown policy or a scale out of range is exit status 2."""
    parser = argparse.ArgumentParser(prog="python -m gateway.brownout", description=__doc__)
    parser.add_argument("--policy", choices=["all", *POLICIES], action="append")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the sessions to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--calibrate", action="store_true", help="find the free numbers again")
    options = parser.parse_args(arguments)
    try:
        model = Model(seed=options.seed, scale=options.scale)
    except ValueError as error:
        parser.error(str(error))
    if options.calibrate:
        return _calibrate(options.seed)
    tallies = run(model, _chosen(options.policy or ["all"]), max(1, options.jobs))
    if options.json:
        json.dump(document(model, tallies), sys.stdout)
        print()
    else:
        print(text(model, tallies))
    return 0


def run(model: Model, names: list[str], jobs: int = 1) -> dict[str, Tally]:
    """Each policy in a process of its own; the result does not depend on ``jobs``."""
    policies = [POLICIES[name] for name in names]
    if jobs == 1 or len(names) == 1:
        return {policy.name: replay(model, policy) for policy in policies}
    with ProcessPoolExecutor(min(jobs, len(names))) as pool:
        return dict(zip(names, pool.map(partial(replay, model), policies), strict=True))


def _calibrate(seed: int) -> int:
    """Print the numbers found, and by how much they miss in a whole run: status 1 above 10 %."""
    found = calibration.calibrate(Model(seed=seed, scale=calibration.SCALE), print)
    print(f"found  {found}\nin use {CALIBRATED}")
    misses = calibration.misses(replay(Model(seed=seed, free=found), ALWAYS).column())
    for name, share in misses.items():
        print(f"{name:8} misses by {share:+.1%}")
    return int(any(abs(share) > calibration.TOLERANCE for share in misses.values()))


def _chosen(asked: list[str]) -> list[str]:
    return [name for name in POLICIES if "all" in asked or name in asked]


if __name__ == "__main__":
    sys.exit(main())
