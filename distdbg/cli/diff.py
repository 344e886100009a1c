"""`distdbg diff`: what got slower, what is called more or less often, what changed its order."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from distdbg.cli.chosen_run import find_run, load_chosen
from distdbg.count_argument import count
from distdbg.diagnose.diff import Change, Difference, Times, compare
from distdbg.diagnose.op_fields import SessionView
from distdbg.diagnose.wording import say_ranks
from distdbg.record.printable import printable
from distdbg.record.text import format_duration, format_nbytes

_TITLES: Final = {
    "slower": "slower",
    "faster": "faster",
    "counts": "as fast, not as often",
    "new": "only in the second",
    "gone": "only in the first",
}


def main(argv: Sequence[str]) -> int:
    """Print the differences; exit code 0 when there are none, 1 when there are."""
    parser = argparse.ArgumentParser(prog="distdbg diff", description=__doc__)
    parser.add_argument("before", metavar="RUN_A", help="a folder, or the name of a run")
    parser.add_argument("after", metavar="RUN_B")
    parser.add_argument(
        "--threshold", type=_share, default=0.2, metavar="SHARE",
        help="by how much a median has to move: 20%% or 0.2 (the default)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=count, default=20, metavar="N", help="rows of each part (20)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    chosen = parser.parse_args(argv)
    views = [SessionView(load_chosen([find_run(text)])) for text in (chosen.before, chosen.after)]
    found = compare(*views, threshold=chosen.threshold)
    if chosen.json:
        sys.stdout.write(json.dumps(_to_plain(found, views), indent=1) + "\n")
    else:
        for view in views:
            for line in view.session.lacks:
                sys.stderr.write(f"run {_name(view)}: {printable(line)}\n")
        lines = _lines(found, views, chosen.limit)
        sys.stdout.write("".join(printable(line) + "\n" for line in lines))
    return int(bool(found))


def _lines(found: Difference, views: Sequence[SessionView], limit: int) -> Iterator[str]:
    first, second = (_name(view) for view in views)
    if not found:
        yield f"run {second} does what run {first} does, as fast"
    else:
        yield f"run {second} against run {first}"
    for name, title in _TITLES.items():
        changes: tuple[Change, ...] = getattr(found, name)
        if changes:
            yield title
        yield from (f"  {_say(change)}" for change in changes[:limit])
        yield from _more(len(changes), limit)
    if found.order:
        yield "another order"
    for order in found.order[:limit]:
        yield f"  {say_ranks(order.ranks)}, call {order.place}"
        yield f"    was {order.before}"
        yield f"    is  {order.after}"
    yield from _more(len(found.order), limit)
    yield from (f"note: {note}" for note in found.notes)


def _name(view: SessionView) -> str:
    return view.session.run or view.session.source


def _more(count: int, limit: int) -> Iterator[str]:
    if count > limit:
        yield f"  and {count - limit} more"


def _say(change: Change) -> str:
    call = change.call
    words = [call.kind]
    if call.nbytes:
        words.append(f"of {format_nbytes(call.nbytes)}")
    if call.group:
        words.append(f"on group '{call.group}'")
    if call.site:
        words.append(f"at {call.site}")
    times = [t for t in (change.before, change.after) if t is not None]
    p50 = " -> ".join(_duration(t.p50_ns) for t in times)
    facts = []
    if change.factor is not None:
        facts.append(f"{change.factor:.2f}x")
    facts += [f"median {p50}", f"total {' -> '.join(_duration(t.total_ns) for t in times)}"]
    return f"{' '.join(words)}: {', '.join(facts)}, {_counts(times)}"


def _counts(times: Sequence[Times]) -> str:
    counts = list(dict.fromkeys(f"{t.count:,}" for t in times))
    return f"{' -> '.join(counts)} {'op' if counts == ['1'] else 'ops'}"


def _duration(value: int | None) -> str:
    return "?" if value is None else format_duration(value)


def _to_plain(found: Difference, views: Sequence[SessionView]) -> dict[str, object]:
    plain: dict[str, object] = {"runs": [_name(view) for view in views]}
    for name in _TITLES:
        plain[name] = [
            {**asdict(change), "factor": change.factor} for change in getattr(found, name)
        ]
    return plain | {
        "order": [asdict(order) for order in found.order],
        "notes": list(found.notes),
        "lacks": [view.session.lacks for view in views],
    }


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 20% or 0.2") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value
