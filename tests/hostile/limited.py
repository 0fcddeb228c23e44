"""Runs commands of the command line one after the other, within limits: `python -m
tests.hostile.limited BYTES '[["report", "RUN"]]'`.

Prints the peak of the memory last. What a run optimizes takes a process with torch, and is left
out.
"""

import json
import resource
import sys
import traceback


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
    print(
        json.dumps(
            {
                "codes": codes,
                "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "torch": is_heavy,
            }
        )
    )


if __name__ == "__main__":
    main()
