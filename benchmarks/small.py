"""`python -m benchmarks.small`: the small path alone, in seconds instead of minutes.

8 B all_reduce, barrier and send_recv on 2 and 4 ranks, beside the peers; for work on the hot path.
`--libraries distdbg` leaves the peers out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.__main__ import add_common_arguments, run
from benchmarks.cases import Case
from benchmarks.measure import Limits

CASES = (Case("all_reduce", 8), Case("barrier", 0), Case("send_recv", 8))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small", description=__doc__)
    add_common_arguments(parser)
    args = parser.parse_args(argv)
    return run(args, CASES, Limits(case_s=args.case_seconds))


if __name__ == "__main__":
    sys.exit(main())
