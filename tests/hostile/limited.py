"""Runs commands of the command line one after the other, within limits: `python -m
tests.hostile.limited BYTES '[["report", "RUN"]]'`.

Prints the peak of the memory last. What a run optimizes takes a process with torch, and is left
out.
"""

import json
import re
import resource
import sys
import traceback
from pathlib import Path


def main():
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (100, 110))
    from palestra.cli.main import main
    from palestra.view import answers

    answers._explained = lambda config: {"lines": []}
    codes = []
    for arguments in json.loads(sys.argv[2]):
        try:
            main(arguments)
            codes.append(0)
        except SystemExit as end:
            codes.append(end.code)
        except BaseException:
            traceback.print_exc()
            codes.append(1)
    is_heavy = "torch" in sys.modules
    # Not ru_maxrss: that begins with what the process that started us held.
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    print(
        json.dumps(
            {
                "codes": codes,
                "peak_kb": int(peak[1]),
                "torch": is_heavy,
            }
        )
    )


if __name__ == "__main__":
    main()
