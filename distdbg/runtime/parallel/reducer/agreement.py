"""Whether all ranks have the same model, and the same in each pass; the errors that say who differs. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.check.arrays import few, odd_ranks, say_ranks
from distdbg.check.sites import shorten
from distdbg.errors import (
    CollectiveError,
    DistError,
    MismatchError,
    PeerLost,
    RankLeft,
    UsageError,
    format_ranks,
)
from distdbg.runtime.parallel.reducer.names import list_names

#: An op failed; a rank that was killed is no CollectiveError.
Failed = CollectiveError | PeerLost

_USABLE = "the group is still usable"
_NOT_AVERAGED = "the gradients of this pass are not those of all ranks: do not use them"
#: What an op is called when this rank goes forward again without having gone backward.
SKIPPED = "no backward pass since the forward pass before"
#: What the op at the end of a pass is called, where it is one of its own.
STATUS = "DDP status"
#: Ops of a backward pass.
_BACKWARD = ("DDP bucket", "DDP order")
_MOST_LINE = 118


@dataclass(frozen=True, slots=True)
class Description:
    """What one rank makes its reducer for."""

    #: Name and 'float32[3,4]', in order.
    parameters: tuple[tuple[str, str], ...]
    #: Options that must be alike: how buckets are made, and what is sent in a pass.
    options: Mapping[str, Any]
    #: What the user called, and the line.
    function: str = ""
    site: str = ""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one rank saw in one pass."""

    #: The number of the pass, from 1.
    number: int
    #: Forward passes since the backward pass before.
    forwards: int
    #: Batches that `dist.batches` has begun since the pass before, in the same loop; 0: not known.
    batches: int = 0
    #: The parameters without a gradient that may not be without one.
    missing: tuple[str, ...] = ()
    #: Those that had none in the first pass, with static_graph, and have one now.
    surplus: tuple[str, ...] = ()
    #: Why this rank has given up the pass; what was left of it is zeros.
    given_up: str = ""
    #: What the user called, and the line.
    function: str = ""
    site: str = ""


@dataclass(frozen=True, slots=True)
class UnevenPass:
    """A pass before which some ranks did more than others."""

    text: str
    #: Those that did more.
    ranks: Sequence[int]


@dataclass(slots=True)
class _Differences:
    """Lines about what differs, and how often each rank is in the minority."""

    ranks: Sequence[int]
    lines: list[str] = field(default_factory=list)
    odd: set[int] = field(default_factory=set)

    def add(self, subject: str, values: Sequence[str]) -> None:
        """Note that the ranks have these values of one thing."""
        sides: dict[str, list[int]] = defaultdict(list)
        for rank, value in zip(self.ranks, values, strict=True):
            sides[value].append(rank)
        ordered = sorted(sides.items(), key=lambda side: -len(side[1]))
        texts = [f"{value} on {say_ranks(ranks)}" for value, ranks in ordered]
        self.lines.append(f"{subject}: {', '.join(texts)}")
        self.odd.update(odd_ranks(values, self.ranks))


def compare_models(
    descriptions: Sequence[Description], ranks: Sequence[int], group: str, this_rank: int
) -> MismatchError | None:
    """The same error on all ranks, with every parameter and option that differs; None: all are alike."""
    found = _Differences(ranks)
    names = dict.fromkeys(name for one in descriptions for name, _ in one.parameters)
    forms = [dict(one.parameters) for one in descriptions]
    for name in names:
        values = [of_rank.get(name, "missing") for of_rank in forms]
        if len(set(values)) > 1:
            found.add(name, values)
    if not found.lines:
        _compare_order(descriptions, found)
    for option in dict.fromkeys(key for one in descriptions for key in one.options):
        values = [str(one.options.get(option)) for one in descriptions]
        if len(set(values)) > 1:
            found.add(f"option {option}", values)
    if not found.lines:
        return None
    first, *rest = found.lines
    what = f"DDP on group '{group}': models differ: {first}"
    odd = sorted(found.odd)
    return MismatchError(
        _short(what),
        kind="DDP",
        group=group,
        ranks=odd or list(ranks),
        sides=_sides([one.parameters for one in descriptions], descriptions, ranks),
        details=[
            *([first] if len(what) > _MOST_LINE else []),
            *few(rest),
            *_where(descriptions, ranks),
            f"no value was exchanged; {_USABLE}",
            *_is_odd(odd, this_rank),
        ],
        hint="all ranks must make the same model, with its parts in the same order",
    )


def _compare_order(descriptions: Sequence[Description], found: _Differences) -> None:
    orders = [[name for name, _ in one.parameters] for one in descriptions]
    for place, at_place in enumerate(zip(*orders, strict=False)):
        if len(set(at_place)) > 1:
            found.add(f"parameter {place} in order", at_place)
            return
    counts = [str(len(order)) for order in orders]
    if len(set(counts)) > 1:  # a name twice
        found.add("number of parameters", counts)


def judge_pass(
    reports: Sequence[PassReport], ranks: Sequence[int], group: str, this_rank: int
) -> DistError | None:
    """The same error on all ranks, if what they report is one; None: all did the same."""
    step = f"DDP step {max(report.number for report in reports)} on group '{group}'"
    sites = _where(reports, ranks)
    given_up = [report.given_up for report in reports]
    if any(given_up):  # all: each knows why
        return None if all(given_up) else _given_up(step, reports, ranks, group, sites, this_rank)
    forwards = [report.forwards for report in reports]
    if reports[0].function == "reduce" and len(set(forwards)) > 1:
        return _kept(step, forwards, reports, ranks, group, sites, this_rank)
    if not all(forwards) and any(forwards):
        return _again(step, forwards, reports, ranks, group, sites, this_rank)
    surplus = _by_rank([report.surplus for report in reports], ranks)
    if surplus:
        name, (having, _) = next(iter(surplus.items()))
        return UsageError(
            _short(f"{step}: {say_ranks(having)} used {name}, which no first pass used"),
            details=[*sites, _USABLE],
            hint="static_graph=True promises that every pass uses the same parameters",
        )
    missing = _by_rank([report.missing for report in reports], ranks)
    if not missing:
        return None
    sides: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = defaultdict(list)
    for name, (lacking, having) in missing.items():
        sides[tuple(lacking), tuple(having)].append(name)
    lines = [_unused(lacking, having, names) for (lacking, having), names in sides.items()]
    what = f"{step}: {lines[0]}"
    details = [
        *([lines[0]] if len(what) > _MOST_LINE else []),
        *few(lines[1:]),
        *sites,
        f"{_NOT_AVERAGED}; {_USABLE}",
    ]
    if all(not having for _, having in sides):
        return UsageError(
            _short(what),
            details=details,
            hint="had they none, find_unused_parameters=True allows it; of several losses, call backward() "
            "once, on their sum",
        )
    odd = sorted({rank for lacking, having in sides if having for rank in lacking})
    details += _is_odd(odd, this_rank)
    return MismatchError(
        _short(what),
        kind="DDP",
        group=group,
        ranks=odd,
        sides=_sides([report.missing for report in reports], reports, ranks),
        details=details,
        hint=f"see which branch {say_ranks(odd)} took; find_unused_parameters=True allows it",
    )


def _unused(lacking: Sequence[int], having: Sequence[int], names: Sequence[str]) -> str:
    """'rank 1 did not use fc2.weight; ranks 0,2-3 did'."""
    words = list_names(names)
    if not having:
        return f"no rank used {words}"
    return f"{say_ranks(lacking)} did not use {words}; {say_ranks(having)} did"


def _given_up(
    step: str,
    reports: Sequence[PassReport],
    ranks: Sequence[int],
    group: str,
    sites: Sequence[str],
    this_rank: int,
) -> MismatchError:
    reasons: dict[str, list[int]] = defaultdict(list)
    for rank, report in zip(ranks, reports, strict=True):
        if report.given_up:
            reasons[report.given_up].append(rank)
    odd = sorted(rank for of in reasons.values() for rank in of)
    lines = [f"{say_ranks(of)} gave up the pass: {reason}" for reason, of in reasons.items()]
    what = f"{step}: {lines[0]}"
    return MismatchError(
        _short(what),
        kind="DDP",
        group=group,
        ranks=odd,
        sides=_sides([report.given_up for report in reports], reports, ranks),
        details=[
            *([lines[0]] if len(what) > _MOST_LINE else []),
            *few(lines[1:]),
            *sites,
            f"{_NOT_AVERAGED}; {_USABLE}",
            *_is_odd(odd, this_rank),
        ],
        hint=f"see the error of {say_ranks(odd)}; all ranks are at the end of this pass: leave its step out "
        "on all",
    )


def _kept(
    step: str,
    forwards: Sequence[int],
    reports: Sequence[PassReport],
    ranks: Sequence[int],
    group: str,
    sites: Sequence[str],
    this_rank: int,
) -> MismatchError:
    """Of reducers without forward passes: what counts are the passes within no_sync()."""
    fewest = min(forwards)
    odd = [rank for rank, count in zip(ranks, forwards, strict=True) if count > fewest]
    usual = [rank for rank in ranks if rank not in odd]
    return MismatchError(
        _short(f"{step}: {say_ranks(odd)} kept or lost a pass that {say_ranks(usual)} reduced"),
        kind="DDP",
        group=group,
        ranks=odd,
        sides=_sides(list(forwards), reports, ranks),
        details=[
            f"passes since the averages before: {_counts(forwards, ranks)}",
            *sites,
            f"gradients of different steps were added: do not use them; {_USABLE}",
            *_is_odd(odd, this_rank),
        ],
        hint="all ranks need as many passes within no_sync() before one that is reduced",
    )


def _again(
    step: str,
    forwards: Sequence[int],
    reports: Sequence[PassReport],
    ranks: Sequence[int],
    group: str,
    sites: Sequence[str],
    this_rank: int,
) -> MismatchError:
    """Several backward passes after one forward pass, which all ranks must run."""
    odd = [rank for rank, count in zip(ranks, forwards, strict=True) if not count]
    usual = [rank for rank in ranks if rank not in odd]
    return MismatchError(
        _short(
            f"{step}: {say_ranks(odd)} went backward again without going forward; not {say_ranks(usual)}"
        ),
        kind="DDP",
        group=group,
        ranks=odd,
        sides=_sides([bool(count) for count in forwards], reports, ranks),
        details=[
            *sites,
            f"gradients of different steps were added: do not use them; {_USABLE}",
            *_is_odd(odd, this_rank),
        ],
        hint="all ranks must run as many backward passes: see what decides that there is another one",
    )


def find_uneven(
    reports: Sequence[PassReport], ranks: Sequence[int], group: str
) -> UnevenPass | None:
    """Where ranks did more than others since the pass before."""
    step = f"DDP step {max(report.number for report in reports)} on group '{group}'"
    is_reduce = reports[0].function == "reduce"
    counts = [report.batches if is_reduce else report.forwards for report in reports]
    fewest = min(counts)
    ahead = [rank for rank, count in zip(ranks, counts, strict=True) if count > fewest]
    if not ahead or not fewest:  # 0 batches: not known
        return None
    skipped, done = ("a pass", "batches") if is_reduce else ("a backward pass", "forward passes")
    return UnevenPass(
        f"{step}: has {say_ranks(ahead)} skipped {skipped}? {done} since the pass before: "
        f"{_counts(counts, ranks)}; gradients of different steps may be averaged",
        ahead,
    )


def is_skipped(error: Failed) -> bool:
    """Whether a rank has gone forward while others wait in a backward pass."""
    if not isinstance(error, MismatchError) or isinstance(error, RankLeft):
        return False
    return bool(_ranks_in(error.sides, *_BACKWARD) and _ranks_in(error.sides, SKIPPED))


def is_ahead(error: Exception) -> bool:
    """Whether some ranks are at the end of a pass, since their hook has raised, and others in a bucket of it.

    Of an error that went through a future of torch only the text is left.
    """
    text = str(error)
    return STATUS in text and _BACKWARD[0] in text


def waiting_bucket(error: MismatchError) -> int | None:
    """The number of the bucket that others have in the op that failed; None: in none yet."""
    functions = [site["function"] for side in error.sides for site in side["sites"]]
    found = [match for one in functions if (match := re.search(r"DDP bucket (\d+)", one))]
    return int(found[0][1]) if found else None


def retell(
    error: Failed, step: int, during: str, uneven: UnevenPass | None = None
) -> Failed | RankLeft | MismatchError:
    """An error of an op that DDP issued, in DDP's words where its cause is known.

    `during`: the name of the op that failed, such as 'DDP bucket 0 of layer4'. `uneven`: a pass before it.
    """
    if uneven is not None:
        error.details = [*error.details, uneven.text]
    where = f"DDP step {step} on group '{error.group}'"
    if isinstance(error, RankLeft):
        return RankLeft(
            _short(f"{where} cannot complete: rank {error.peer} {error.how}, needed for {during}"),
            peer=error.peer,
            how=error.how,
            sides=error.sides,
            kind=error.kind,
            seq=error.seq,
            group=error.group,
            ranks=error.ranks,
            details=[error.what, *error.details],
            hint=f"had rank {error.peer} fewer batches? join() allows it; or give all ranks as many"
            if uneven is None or error.peer not in uneven.ranks
            else f"all ranks must run as many passes: see what rank {error.peer} did before that step",
        )
    if not isinstance(error, MismatchError):
        error.details = [f"{where}: {during}", *error.details]
        return error
    waiting = _ranks_in(error.sides, *_BACKWARD)
    skipping = _ranks_in(error.sides, SKIPPED)
    if not waiting or not skipping:
        return error  # it names the buckets, and a rank that is in no pass is told the same words
    what = f"{say_ranks(skipping)} skipped a backward pass, in which {say_ranks(waiting)} wait"
    return MismatchError(
        _short(f"{where}: {what}"),
        kind=error.kind,
        seq=error.seq,
        group=error.group,
        ranks=skipping,
        sides=error.sides,
        details=[error.what, *error.details],
        hint="all ranks must run as many backward passes: see what decides that one is skipped",
    )


def _ranks_in(sides: Sequence[Mapping[str, Any]], *words: str) -> list[int]:
    return sorted(
        rank
        for side in sides
        for site in side["sites"]
        if any(word in site["function"] for word in words)
        for rank in site["ranks"]
    )


def _by_rank(
    names: Sequence[Sequence[str]], ranks: Sequence[int]
) -> dict[str, tuple[list[int], list[int]]]:
    """Of each name that some rank has: the ranks that have it, and those that have not."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    sets = [set(of_rank) for of_rank in names]
    for name in dict.fromkeys(name for of_rank in names for name in of_rank):
        having = [rank for rank, of_rank in zip(ranks, sets, strict=True) if name in of_rank]
        found[name] = having, [rank for rank in ranks if rank not in having]
    return found


def _counts(counts: Sequence[int], ranks: Sequence[int]) -> str:
    sides: dict[int, list[int]] = defaultdict(list)
    for rank, count in zip(ranks, counts, strict=True):
        sides[count].append(rank)
    return ", ".join(f"{count} on {say_ranks(of)}" for count, of in sorted(sides.items()))


def _sides(
    keys: Sequence[Any], facts: Sequence[Description] | Sequence[PassReport], ranks: Sequence[int]
) -> list[dict[str, Any]]:
    """As MismatchError.sides has them, the largest first."""
    grouped: dict[Any, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        grouped[key].append(at)
    short = shorten(_sites(facts))
    return [
        {
            "ranks": [ranks[at] for at in places],
            "what": "DDP",
            "facts": {"kind": "DDP"},
            "sites": [
                {
                    "function": facts[at].function,
                    "call_site": short[facts[at].site],
                    "ranks": [ranks[at]],
                }
                for at in places
            ],
            "previous": [],
        }
        for places in sorted(grouped.values(), key=lambda places: -len(places))
    ]


def _where(facts: Sequence[Description] | Sequence[PassReport], ranks: Sequence[int]) -> list[str]:
    """A line for each of the users' lines, with its ranks."""
    short = shorten(_sites(facts))
    sides: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, function, site in zip(
        ranks, [one.function for one in facts], _sites(facts), strict=True
    ):
        if site:
            sides[function, short[site]].append(rank)
    return few([f"{say_ranks(of)} called {name} at {site}" for (name, site), of in sides.items()])


def _sites(facts: Sequence[Description] | Sequence[PassReport]) -> list[str]:
    return [one.site for one in facts]


def _is_odd(odd: Sequence[int], this_rank: int) -> list[str]:
    if this_rank not in odd:
        return []
    if len(odd) == 1:
        return ["this rank is the one that differs"]
    return [f"this rank is one of those that differ: {format_ranks(odd)}"]


def _short(line: str) -> str:
    return line if len(line) <= _MOST_LINE else f"{line[: _MOST_LINE - 3]}..."
