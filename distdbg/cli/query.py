"""`distdbg query`: the ops of a run that fit an expression, or what they sum up to."""

from __future__ import annotations

import argparse
import csv
import difflib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from distdbg.cli.chosen_run import find_run, load_chosen
from distdbg.cli.table import print_table
from distdbg.count_argument import count
from distdbg.diagnose.op_fields import FIELDS, FieldUnit, SessionView, Value
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.query import names_in, parse, select
from distdbg.diagnose.session import Session
from distdbg.diagnose.summary import OpSums, read_keys, sum_up
from distdbg.diagnose.wording import short_site
from distdbg.errors import UsageError
from distdbg.record.entries import KIND_LABELS
from distdbg.record.folders import list_runs
from distdbg.record.format import Aside, Status
from distdbg.record.text import format_duration, format_nbytes

_EPILOG: Final = "fields:\n" + "\n".join(
    f"  {field.name:10} {field.unit.value:11} {field.about}" for field in FIELDS.values()
)
#: The columns of the list of ops.
_COLUMNS: Final = (
    "rank", "group", "kind", "seq", "nbytes", "peer", "tag", "status", "issued", "duration", "wait",
    "site",
)  # fmt: skip
_ALL: Final = tuple(FIELDS)

Row = dict[str, Any]
Item = TypeVar("Item")


def main(argv: Sequence[str]) -> int:
    """Print what fits; exit code 0 also when nothing does."""
    parser = argparse.ArgumentParser(
        prog="distdbg query",
        description=f"{__doc__}\n\n  distdbg query runs/0412 'rank=3 and duration>10ms' --by kind,size",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="[RUN...] [EXPR]",
        help="folders of a run (the latest when not given), then which ops are meant (all)",
    )  # fmt: skip
    parser.add_argument("--by", metavar="KEYS", help="sum up: kind,group,size and others")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    parser.add_argument("--limit", type=count, metavar="N", help="this many rows (table: 50)")
    parser.add_argument("--sort", metavar="COLUMN", help="by this column; -COLUMN: largest first")
    parser.add_argument("--attempt", type=count, metavar="N", help="which start of the run")
    chosen = parser.parse_args(_guard(argv))
    # An empty word is an expression that says nothing: a variable of a shell that is not set.
    paths, expression = _split([word for word in chosen.words if word])
    test = parse(expression)
    keys = None if chosen.by is None else read_keys(chosen.by)
    columns = _names(keys)
    _check_sort(chosen.sort, columns)
    view = SessionView(load_chosen(paths, attempt=chosen.attempt))
    _check_names(view, names_in(expression))
    for line in view.session.lacks:
        sys.stderr.write(f"{line}\n")
    limit = 50 if chosen.limit is None and chosen.format == "table" else chosen.limit
    ops = select(view, test)
    if keys is None:
        shown, left = _op_rows(view, ops, chosen.sort, limit)
    else:
        sums = [_sums_row(keys, row) for row in sum_up(view, ops, keys)]
        ordered = _in_order(sums, chosen.sort, lambda row, name: row[name])
        shown = list(islice(ordered, limit))
        left = len(sums) - len(shown)
    PRINTERS[chosen.format](view.session.run or view.session.source, columns, shown)
    sys.stdout.flush()  # the rest goes below the rows
    if left:
        sys.stderr.write(f"{left:,} more; --limit N shows them\n")
    return 0


def _guard(argv: Sequence[str]) -> list[str]:
    """`--sort -duration` is a column, not a flag."""
    words = list(argv)
    for at, word in enumerate(words[:-1]):
        if word == "--sort" and words[at + 1].startswith("-"):
            words[at : at + 2] = [f"--sort={words[at + 1]}"]
            break
    return words


def _split(words: Sequence[str]) -> tuple[list[Path], str]:
    """Runs, then an expression: from the first word on that looks like one and is no path."""
    first = next((at for at, word in enumerate(words) if _is_expression(word)), len(words))
    before, after = list(words[:first]), list(words[first:])
    if not before and len(after) > 1 and _is_run_behind(after[-2], after[-1]):
        before.append(after.pop())
    return [find_run(run) for run in before] or [find_run(None)], " ".join(after)


def _is_run_behind(word: str, last: str) -> bool:
    """Whether the last word is a run that stands behind the expression: as part of it, it would be wrong."""
    goes_on = re.search(r"[=<>~(,!]$", word) or word.lower() in ("and", "or", "not", "in")
    is_run = ("/" in last and _exists(last)) or any(run.name == last for run in list_runs())
    return not goes_on and is_run


def _check_names(view: SessionView, named: Mapping[str, Sequence[str]]) -> None:
    """What no op can be, or be of, is a mistake and not an empty answer."""
    for field, words in named.items():
        known = _KNOWN[field](view.session) if words else set()
        unknown = next((word for word in words if word not in known), None)
        if unknown is not None:
            near = difflib.get_close_matches(unknown, sorted(known), 1)
            plural = "statuses" if field == "status" else f"{field}s"
            hint = f"did you mean {near[0]}?" if near else f"{plural}: {', '.join(sorted(known))}"
            raise UsageError(f"query: unknown {field} {unknown!r}", hint=hint)


def _kinds(session: Session) -> set[str]:
    """Another library's may have any name."""
    return {*KIND_LABELS, *(aside.label for aside in Aside)} | {
        session.kind_of(OpRef(rank, at))
        for rank, log in session.ranks.items()
        for at in range(len(log.ops))
    }


_KNOWN: Final[Mapping[str, Callable[[Session], set[str]]]] = {
    "kind": _kinds,
    "status": lambda _: {"in_flight", *(status.name.lower() for status in Status)},
    "group": lambda session: {group.label for group in session.groups},
}


def _is_expression(word: str) -> bool:
    looks_so = word in FIELDS or re.search(r"[=<>~()\s]", word) is not None
    return looks_so and not _exists(word)


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # longer than a path may be
        return False


# ---------------------------------------------------------------------------------------- the rows


def _op_rows(
    view: SessionView, ops: Iterable[OpRef], sort: str | None, limit: int | None
) -> tuple[list[Row], int]:
    """The rows to show, and how many ops are left; there may be millions, of which few are shown."""
    ordered = iter(_in_order(ops, sort, lambda op, name: FIELDS[name].read(view, op)))
    shown = [
        {name: field.read(view, op) for name, field in FIELDS.items()}
        for op in islice(ordered, limit)
    ]
    return shown, sum(1 for _ in ordered)


def _sums_row(keys: Sequence[str], sums: OpSums) -> Row:
    row: Row = dict(zip(keys, sums.key, strict=True))
    row |= {
        "count": sums.count,
        "in_flight": sums.count - sums.ended,
        "bytes": sums.nbytes,
        "total": sums.total_ns,
        "p50": sums.percentile_ns(0.5),
        "p99": sums.percentile_ns(0.99),
        "max": sums.percentile_ns(1.0),
        "algbw": sums.algorithm_bandwidth,
        "busbw": sums.bus_bandwidth,
    }
    return row


_SUMS: Final = ("count", "in_flight", "bytes", "total", "p50", "p99", "max", "algbw", "busbw")


def _names(keys: tuple[str, ...] | None) -> tuple[str, ...]:
    return _ALL if keys is None else (*keys, *_SUMS)


def _check_sort(sort: str | None, columns: Sequence[str]) -> None:
    if sort is not None and sort.removeprefix("-") not in columns:
        raise UsageError(f"query: no column {sort!r}", hint=f"columns: {', '.join(columns)}")


def _in_order(
    items: Iterable[Item], sort: str | None, read: Callable[[Item, str], Value | float]
) -> Iterable[Item]:
    """Sort by a column; what has no value comes last, either way."""
    if sort is None:
        return items
    name = sort.removeprefix("-")
    keyed = [(read(item, name), item) for item in items]
    with_value = [pair for pair in keyed if pair[0] is not None]
    with_value.sort(key=lambda pair: _sort_key(pair[0]), reverse=sort != name)
    return [item for _, item in with_value] + [item for value, item in keyed if value is None]


def _sort_key(value: Value | float) -> tuple[bool, float, str]:
    is_text = isinstance(value, str)
    return (is_text, 0.0 if is_text or value is None else float(value), str(value))


# ------------------------------------------------------------------------------------- the formats


def _print_table(run: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    if columns == _ALL:
        columns = _COLUMNS
    cells = [[_show(name, row[name]) for name in columns] for row in rows]
    print_table(f"run {run}: {len(rows):,} rows", columns, cells)


def _show(name: str, value: Value | float) -> str:
    if value is None:
        return ""
    if name in ("algbw", "busbw"):
        return f"{float(value) / 1e9:.3g} GB/s"
    if name in ("total", "p50", "p99", "max"):
        return format_duration(int(value))
    if name in ("bytes", "size"):
        return format_nbytes(int(value))
    field = FIELDS.get(name)
    if field is not None and not isinstance(value, str):
        if field.unit is FieldUnit.NS:
            return f"-{format_duration(-int(value))}" if value < 0 else format_duration(int(value))
        if field.unit is FieldUnit.NBYTES:
            return format_nbytes(int(value))
        if field.unit is FieldUnit.FLAG:
            return "yes" if value else ""
    return short_site(str(value)) if name == "site" else str(value)


#: Names in CSV and JSON say their units.
_WITH_UNITS: Final = {
    "duration": "duration_ns", "wait": "wait_ns", "transfer": "transfer_ns", "issued": "issued_ns",
    "total": "total_ns", "p50": "p50_ns", "p99": "p99_ns", "max": "max_ns", "size": "nbytes",
    "bytes": "total_nbytes", "algbw": "algbw_bytes_per_s", "busbw": "busbw_bytes_per_s",
}  # fmt: skip


def _print_csv(run: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_WITH_UNITS.get(name, name) for name in columns)
    writer.writerows([row[name] for name in columns] for row in rows)
    sys.stdout.write(out.getvalue())


def _print_json(run: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    plain = [{_WITH_UNITS.get(name, name): row[name] for name in columns} for row in rows]
    sys.stdout.write(json.dumps({"run": run, "rows": plain}, indent=1) + "\n")


PRINTERS: Final[dict[str, Callable[[str, Sequence[str], Sequence[Row]], None]]] = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_json,
}
