"""Checks that all ranks have the same model; says errors of ops in DDP's words, and who said what. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.check.arrays import differing_ranks, few, say_ranks
from distdbg.errors import CollectiveError, MismatchError, PeerLost, RankLeft, format_ranks
from distdbg.ops.sites import shorten
from distdbg.runtime.groups.leaving import without_place
from distdbg.runtime.parallel.reducer.pass_report import PassReport, UnevenPass

#: An op failed; a rank that was killed is no CollectiveError.
Failed = CollectiveError | PeerLost

USABLE = "the group is still usable"
NOT_AVERAGED = "the gradients of this pass are not those of all ranks: do not use them"
#: What an op is called when this rank goes forward again without having gone backward.
SKIPPED = "no backward pass since the forward pass before"
#: What the op at the end of a pass is called, where it is one of its own.
STATUS = "DDP status"
#: Ops of a backward pass.
_BACKWARD = ("DDP bucket", "DDP order")
MAX_LINE = 118


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
        self.odd.update(differing_ranks(values, self.ranks))


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
        short_line(what),
        kind="DDP",
        group=group,
        ranks=odd or list(ranks),
        sides=sides_of([one.parameters for one in descriptions], descriptions, ranks),
        details=[
            *([first] if len(what) > MAX_LINE else []),
            *few(rest),
            *where_called(descriptions, ranks),
            f"no value was exchanged; {USABLE}",
            *say_odd(odd, this_rank),
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
        has_skipped = uneven is not None and error.peer in uneven.ranks
        why = f"; {uneven.skipped}" if has_skipped and uneven else f", needed for {during}"
        if any(line.startswith(f"rank {error.peer} ran out of batches") for line in error.details):
            why = "; it ran out of batches"
        return RankLeft(
            short_line(
                f"{where} cannot complete: rank {error.peer} {without_place(error.how)}{why}"
            ),
            peer=error.peer,
            how=error.how,
            sides=error.sides,
            kind=error.kind,
            seq=error.seq,
            group=error.group,
            ranks=error.ranks,
            details=[error.what, *error.details],
            hint=f"had rank {error.peer} fewer batches? join() allows it; or give all ranks as many"
            if not has_skipped
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
        short_line(f"{where}: {what}"),
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


def sides_of(
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


def where_called(
    facts: Sequence[Description] | Sequence[PassReport], ranks: Sequence[int]
) -> list[str]:
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


def say_odd(odd: Sequence[int], this_rank: int) -> list[str]:
    if this_rank not in odd:
        return []
    if len(odd) == 1:
        return ["this rank is the one that differs"]
    return [f"this rank is one of those that differ: {format_ranks(odd)}"]


def short_line(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."
