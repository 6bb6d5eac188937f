"""``make bench [ONLY=name]``: run the benchmarks; one JSON object a line, here and in a file.

A benchmark is a module of this package with ``measure() -> Iterator[Figure]``. Its first docstring
line is its description in ``--list``. Figures go to standard output and are appended to
``var/bench.jsonl`` (``BENCH_OUT``); everything that is said about the run goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import tests.bench
from tests.bench.figures import Figure, say

Measure = Callable[[], Iterator[Figure]]


def benchmarks() -> dict[str, ModuleType]:
    """Every benchmark by its name, in alphabetical order."""
    found = {}
    for entry in pkgutil.iter_modules(tests.bench.__path__):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"tests.bench.{entry.name}")
        if hasattr(module, "measure"):
            found[entry.name] = module
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run one or all. Exit status 1 when one of them could not measure, 2 for an unknown name."""
    known = benchmarks()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(known))
    parser.add_argument("--list", action="store_true", help="say what there is")
    options = parser.parse_args(arguments)
    if options.list:
        for name, module in known.items():
            print(f"{name:12} {(module.__doc__ or '').splitlines()[0]}")
        return 0
    names = [options.only] if options.only else list(known)
    out = Path(os.environ.get("BENCH_OUT", "var/bench.jsonl"))
    out.parent.mkdir(parents=True, exist_ok=True)
    failed = 0
    with out.open("a", encoding="utf-8") as kept:
        for name in names:
            say(f"--- {name}")
            try:
                for figure in known[name].measure():
                    print(figure.line(), flush=True)
                    kept.write(figure.line() + "\n")
                    kept.flush()
            except Exception as error:  # the others are still worth measuring
                say(f"{name} could not be measured: {type(error).__name__}: {error}")
                failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
