"""`distdbg exec`: the value of an expression on ranks of a running job, equal values once.

It is evaluated where a rank is stopped, or where it runs if the job was started with --debuggable: in the
innermost frame of the user's, without stopping the rank.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from distdbg.cli.rank_debuggers import RankDebuggers, find_debuggers
from distdbg.cli.table import print_table
from distdbg.client.addresses import LocalAddress, parse_address
from distdbg.client.live_runs import find_live_runs
from distdbg.errors import DistError, UsageError, format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.host import host_name
from distdbg.record.rank_list import read_ranks

_AT_ONCE = 32


def main(argv: Sequence[str]) -> int:
    """Print them; exit code 1 when a rank has none."""
    parser = argparse.ArgumentParser(prog="distdbg exec", description=__doc__)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[RUN] EXPR",
        help="the expression; before it the run, unless it is the only one: its name, HOST:PORT, "
        "ssh://HOST/RUN or a folder",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--rank", metavar="LIST", help="on these ranks: 0-3,7")
    which.add_argument("--all", action="store_true", help="on all ranks")
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="how long a rank may take (5)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    chosen = parser.parse_intermixed_args(argv)
    if len(chosen.words) > 2:
        raise UsageError("distdbg exec takes an expression, and a run before it", hint="quote it")
    if not 0 < chosen.timeout <= 3600:
        raise UsageError("--timeout is more than 0 and at most 3600 seconds")
    run, expression = split_words(chosen.words, _is_run)
    with find_debuggers(run) as debuggers:
        ranks = debuggers.ranks() if chosen.all else _read(chosen.rank)
        if not ranks:
            raise UsageError(f"no ranks of run {debuggers.name} are known here")
        with ThreadPoolExecutor(min(_AT_ONCE, len(ranks))) as pool:
            answers = list(
                pool.map(lambda rank: _ask(debuggers, rank, expression, chosen.timeout), ranks)
            )
    if chosen.json:
        rows = [{"rank": rank, **answer} for rank, answer in zip(ranks, answers, strict=True)]
        document = {"run": debuggers.name, "expression": expression, "ranks": rows}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        title = f"{expression} on run {debuggers.name}"
        print_table(title, ("rank", "value", "type", "error"), fold(ranks, answers))
    return 1 if any("error" in answer for answer in answers) else 0


def split_words(words: Sequence[str], is_run: Callable[[str], bool]) -> tuple[str | None, str]:
    """The run, if one is given, and the expression; also in the other order where only that makes sense."""
    if len(words) == 1:
        return None, words[0]
    first, second = words
    if not is_run(first) and is_run(second):
        return second, first
    return first, second


def _is_run(text: str) -> bool:
    if "/" in text and Path(text).is_dir():
        return True
    with suppress(UsageError):
        if not isinstance(parse_address(text), LocalAddress):
            return True
    lives = find_live_runs(host_name()) if text else []
    return any(live.run.startswith(text) for live in lives)


def fold(ranks: Sequence[int], answers: Sequence[dict[str, str]]) -> list[tuple[str, ...]]:
    """Rows of the table: ranks that say the same are one."""
    said: dict[tuple[str, ...], list[int]] = {}
    for rank, answer in zip(ranks, answers, strict=True):
        key = tuple(answer.get(name, "") for name in ("value", "type", "error"))
        said.setdefault(key, []).append(rank)
    return [(format_ranks(of), *key) for key, of in said.items()]


def _read(text: str) -> list[int]:
    try:
        return read_ranks(text)
    except ValueError as error:
        raise UsageError(f"--rank {text!r}: {error}", hint="write 0-3,7") from None


def _ask(debuggers: RankDebuggers, rank: int, expression: str, timeout_s: float) -> dict[str, str]:
    try:
        with debuggers.connect(rank, hello_s=timeout_s) as client:
            return client.evaluate(expression, timeout_s)
    except TimeoutError:
        return {"error": f"no answer within {duration_text(timeout_s)}"}
    except DistError as error:
        return {"error": error.what}
    except OSError as error:
        return {"error": f"cannot be reached: {error.strerror or error}"}
