"""``python -m gateway.conformance URL TOKEN --name NAME`` checks a control plane against the wire;
``python -m gateway.conformance --serve`` is a stand-in one that checks a gateway in any language.

Exit status 0 when every rule held, 1 when one did not, 2 when nothing could be checked.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import aiohttp

from gateway.conformance.checks import check_control_plane
from gateway.conformance.stand_in import serve


def main(arguments: list[str] | None = None) -> int:
    """Run one half."""
    parser = argparse.ArgumentParser(prog="python -m gateway.conformance", description=__doc__)
    parser.add_argument("url", nargs="?", help="the control plane, http://host:port")
    parser.add_argument("token", nargs="?", help="a gateway's token; use a gateway made for this")
    parser.add_argument("--name", default="demo", help="that gateway's name (default: demo)")
    parser.add_argument("--serve", action="store_true", help="be a control plane for a gateway")
    parser.add_argument("--port", type=int, default=8700, help="where to serve (default: 8700)")
    parser.add_argument("--seconds", type=float, help="serve so long; default: until Ctrl-C")
    options = parser.parse_args(arguments)
    if options.serve:
        with contextlib.suppress(KeyboardInterrupt):
            return asyncio.run(serve(options.port, options.seconds))
        return 1
    if not options.url or not options.token:
        parser.error("give URL and TOKEN, or --serve")
    try:
        failed = asyncio.run(check_control_plane(options.url, options.token, options.name))
    except aiohttp.ClientError as error:
        print(f"{options.url} cannot be reached: {error}", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
