#!/usr/bin/env python3
"""Interop cases for the Python client, which wraps the C++ client.

    main.py NAMESRV [CASE...]     runs the cases, all at once (NAMESRV may also come from NAMESRV_ADDR)

The C++ library keeps logs and broadcast offsets below HOME.
"""

import os
import pathlib
import sys
import threading
import traceback

# For `admin`, which all programs share.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from interop import body, group, pull, push, retry, send
from interop.fixture import Fixture

CASES = {**send.CASES, **push.CASES, **pull.CASES, **retry.CASES, **group.CASES, **body.CASES}
REASON_LENGTH = 500


def main():
    namesrv, *wanted = sys.argv[1:] or [os.environ.get("NAMESRV_ADDR")]
    if not namesrv:
        sys.exit(__doc__)
    names = [name for name in CASES if not wanted or name in wanted]
    report(f"CASES {' '.join(names)}")
    failed = []
    threads = [threading.Thread(target=run, args=(name, namesrv, failed)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The library's threads are running; an ordinary exit would take their objects away.
    os._exit(1 if failed else 0)


def run(name, namesrv, failed):
    try:
        CASES[name](Fixture(namesrv, name))
        report(f"PASS {name}")
    except Exception as failure:
        failed.append(name)
        report(f"FAIL {name}: {one_line(failure)}")
        traceback.print_exc()


def one_line(failure):
    line = " ".join(f"{type(failure).__name__}: {failure}".split())
    return line if len(line) <= REASON_LENGTH else line[:REASON_LENGTH] + "…"


def report(line):
    # One write a line: several threads report.
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    main()
