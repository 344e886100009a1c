"""From samples to the tables of docs/explanation/overhead.md; pure.

Every cell is `10th percentile / median`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.cases import Case
from benchmarks.overhead.contests import (
    DEEP,
    DETAIL,
    GLOO,
    GLOO_OFF,
    INIT,
    MARK,
    MONITORED,
    OFF,
    OPTION_CASES,
    OPTIONS,
    OURS,
    SMALL,
    SPAN,
    UNWRAPPED,
)
from benchmarks.overhead.judge import Answers, Target, answers, difference, judge, place, spread
from benchmarks.overhead.measure import Samples


def format_time(seconds: float, *, signed: bool = False) -> str:
    """Three digits in the unit that fits, down to ns; with its sign for a difference."""
    size = abs(seconds)
    for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if size < 999.5 * factor or unit == "s":
            break
    value = seconds / factor
    digits = 0 if unit == "ns" or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:{'+' if signed else ''}.{digits}f} {unit}"


def format_report(measured: Sequence[Samples], gaps: Mapping[str, str]) -> str:
    """All tables, in Markdown."""
    calls = [samples for samples in measured if samples.contest.name == "calls"]
    parts = []
    targets = [target for samples in calls for target in judge(samples)]
    if targets:
        parts.append(f"## Targets\n\n{_targets(targets)}")
    for samples in calls:
        size = samples.contest.world_size
        parts.append(f"## {size} {'rank' if size == 1 else 'ranks'}\n\n{_calls(samples)}")
    options = [samples for samples in measured if samples.contest.name == "options"]
    parts += [f"## Options\n\n{_options(samples)}" for samples in options if samples.times_s]
    if prices := [row for samples in measured for row in price_rows(samples)]:
        parts.append(f"## Prices\n\n{_table(['what', 'price'], prices)}")
    parts += [f"Not measured: {name}: {reason}." for name, reason in gaps.items()]
    return "\n\n".join(parts)


def _targets(targets: Sequence[Target]) -> str:
    rows = []
    for target in targets:
        if target.unit:
            limit, found = format_time(target.limit), _pair(target.found, signed=True)
        else:
            limit = f"{target.limit:.0%}"
            found = f"{target.found.low:+.1%} / {target.found.middle:+.1%}"
        rows.append([target.what, limit, found, target.verdict])
    met = sum(target.verdict == "met" for target in targets)
    return f"{_table(['what', 'at most', 'found', ''], rows)}\n\n{met} of {len(targets)} met."


def _calls(samples: Samples) -> str:
    subjects = [*OURS, *GLOO]
    rows = []
    for case in samples.contest.cases:
        cells = [place(case)]
        for subject in subjects:
            times = samples.times_s.get((case, subject.name))
            cells.append(_pair(answers(times)) if times else "-")
        off = samples.times_s.get((case, OFF.name))
        rows.append([*cells, f"{spread(off):.1f}" if off else "-"])
    return _table(["op", *(subject.name for subject in subjects), "spread of OFF"], rows)


def _options(samples: Samples) -> str:
    rows = []
    for subject in (DETAIL, *OPTIONS):
        cells = [subject.name if subject is DETAIL else f"+ {subject.name}"]
        for case in OPTION_CASES:
            times = samples.times_s.get((case, subject.name))
            base = samples.times_s.get((case, DETAIL.name))
            if not times or not base:
                cells.append("-")
            elif subject is DETAIL:
                cells.append(_pair(answers(times)))
            else:
                cells.append(_pair(difference(times, base), signed=True))
        rows.append(cells)
    return _table(["", *map(place, OPTION_CASES)], rows)


def price_rows(samples: Samples) -> list[list[str]]:
    """Name and price of everything that is no column of a table of calls."""
    size, times = samples.contest.world_size, samples.times_s

    def total(what: str, case: Case, subject: str = DETAIL.name) -> list[list[str]]:
        found = times.get((case, subject))
        return [[what, _pair(answers(found))]] if found else []

    def extra(what: str, of: tuple[Case, str], over: tuple[Case, str]) -> list[list[str]]:
        if not times.get(of) or not times.get(over):
            return []
        return [[what, _pair(difference(times[of], times[over]), signed=True)]]

    match samples.contest.name:
        case "alone":
            rows = total("a mark", MARK) + total("a span", SPAN)
            for depth, deep in DEEP.items():
                name = f"{depth} more frames on the stack of an op"
                rows += extra(name, (deep, DETAIL.name), (SMALL, DETAIL.name))
            return rows
        case "foreign":
            [op] = samples.contest.cases
            rows = total(
                f"an op of a foreign backend that does nothing, {size} ranks, unwrapped",
                op,
                UNWRAPPED.name,
            )
            for subject in samples.contest.subjects[1:]:
                name = f"the check beside it at {subject.name}"
                rows += extra(name, (op, subject.name), (op, UNWRAPPED.name))
            return rows
        case "monitored":
            name = f"monitored_barrier, {size} ranks"
            rows = total(name, MONITORED)
            return rows + total(f"the same, torch {GLOO_OFF.name}", MONITORED, GLOO_OFF.name)
        case "init":
            ranks = f"{size} {'rank' if size == 1 else 'ranks'}"
            rows = total(f"init_process_group, {ranks}, unwrapped", INIT, UNWRAPPED.name)
            name = "the record and the check in it"
            return rows + extra(name, (INIT, DETAIL.name), (INIT, UNWRAPPED.name))
    return []


def _pair(found: Answers, *, signed: bool = False) -> str:
    low, middle = (format_time(value, signed=signed) for value in (found.low, found.middle))
    return f"{low} / {middle}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
