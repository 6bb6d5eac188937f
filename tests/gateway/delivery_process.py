"""One worker's view of the shared idempotency keys, in a process of its own.

``python -m tests.gateway.delivery_process FILE``; each line in is a command, each line out its
answer: ``begin KEY NOW``, ``end KEY NOW``, ``time COUNT`` (seconds of processor time for one begin
and end).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gateway.deliveries import Deliveries
from gateway.redelivery import Redeliveries


def main(path: Path) -> None:
    keys = Redeliveries(Deliveries(path))
    print("ready", flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "begin":
            print(keys.begin("acme", words[0], float(words[1])).name, flush=True)
        elif command == "end":
            keys.end("acme", words[0], float(words[1]))
            print("ended", flush=True)
        else:
            began = time.process_time()
            for number in range(int(words[0])):
                keys.begin("acme", f"key {number}", 1.0)
                keys.end("acme", f"key {number}", 1.0)
            print((time.process_time() - began) / int(words[0]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
