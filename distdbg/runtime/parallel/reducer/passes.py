"""Checks that all ranks did the same in one pass, by what each reports; the errors say who did not. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.check.arrays import few, say_ranks
from distdbg.errors import DistError, MismatchError, UsageError
from distdbg.ops.sites import shorten
from distdbg.runtime.parallel.reducer.agreement import (
    MAX_LINE,
    NOT_AVERAGED,
    USABLE,
    say_odd,
    short_line,
    sides_of,
    where_called,
)
from distdbg.runtime.parallel.reducer.names import list_names
from distdbg.runtime.parallel.reducer.pass_report import PassReport, UnevenPass


@dataclass(frozen=True, slots=True)
class _Pass:
    """What the ranks report of one pass, and how it is told."""

    reports: Sequence[PassReport]
    ranks: Sequence[int]
    group: str
    this_rank: int

    @property
    def step(self) -> str:
        return f"DDP step {max(report.number for report in self.reports)} on group '{self.group}'"

    @property
    def sites(self) -> list[str]:
        return where_called(self.reports, self.ranks)

    def where(self, is_odd: Iterable[object]) -> tuple[list[int], list[int]]:
        """The ranks of which it is so, and the others."""
        odd = [rank for rank, is_so in zip(self.ranks, is_odd, strict=True) if is_so]
        return odd, [rank for rank in self.ranks if rank not in odd]

    def mismatch(
        self, what: str, odd: Sequence[int], facts: Sequence[Any], details: Sequence[str], hint: str
    ) -> MismatchError:
        """`facts`: by rank, what divides them into sides."""
        return MismatchError(
            short_line(f"{self.step}: {what}"),
            kind="DDP",
            group=self.group,
            ranks=odd,
            sides=sides_of(facts, self.reports, self.ranks),
            details=[*details, *say_odd(odd, self.this_rank)],
            hint=hint,
        )

    def lines(self, lines: list[str]) -> list[str]:
        """The details of what the first of some lines begins with."""
        is_cut = len(f"{self.step}: {lines[0]}") > MAX_LINE
        return [
            *([lines[0]] if is_cut else []),
            *few(lines[1:]),
            *self.sites,
            f"{NOT_AVERAGED}; {USABLE}",
        ]


def judge_pass(
    reports: Sequence[PassReport], ranks: Sequence[int], group: str, this_rank: int
) -> DistError | None:
    """The same error on all ranks, if what they report is one; None: all did the same."""
    one = _Pass(reports, ranks, group, this_rank)
    given_up = [report.given_up for report in reports]
    if any(given_up):  # all: each knows why
        return None if all(given_up) else _given_up(one)
    forwards = [report.forwards for report in reports]
    if reports[0].function == "reduce" and len(set(forwards)) > 1:
        return _kept(one, forwards)
    if not all(forwards) and any(forwards):
        return _again(one, forwards)
    skipping = _skipping(reports, ranks)
    if skipping:
        return _skipped(one, skipping)
    surplus = _by_rank([report.surplus for report in reports], ranks)
    if surplus:
        name, (having, _) = next(iter(surplus.items()))
        return UsageError(
            short_line(f"{one.step}: {say_ranks(having)} used {name}, which no first pass used"),
            details=[*one.sites, USABLE],
            hint="static_graph=True promises that every pass uses the same parameters",
        )
    missing = _by_rank([report.missing for report in reports], ranks)
    if not missing:
        return None
    sides: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = defaultdict(list)
    for name, (lacking, having) in missing.items():
        sides[tuple(lacking), tuple(having)].append(name)
    lines = [_unused(lacking, having, names) for (lacking, having), names in sides.items()]
    if all(not having for _, having in sides):
        return UsageError(
            short_line(f"{one.step}: {lines[0]}"),
            details=one.lines(lines),
            hint="had they none, find_unused_parameters=True allows it; of several losses, all go backward "
            "before the optimizer steps",
        )
    odd = sorted({rank for lacking, having in sides if having for rank in lacking})
    return one.mismatch(
        lines[0],
        odd,
        [report.missing for report in reports],
        one.lines(lines),
        f"see which branch {say_ranks(odd)} took; find_unused_parameters=True allows it",
    )


def _unused(lacking: Sequence[int], having: Sequence[int], names: Sequence[str]) -> str:
    """'rank 1 did not use fc2.weight; ranks 0,2-3 did'."""
    words = list_names(names)
    if not having:
        return f"no rank used {words}"
    return f"{say_ranks(lacking)} did not use {words}; {say_ranks(having)} did"


def _given_up(one: _Pass) -> MismatchError:
    reasons: dict[str, list[int]] = defaultdict(list)
    for rank, report in zip(one.ranks, one.reports, strict=True):
        if report.given_up:
            reasons[report.given_up].append(rank)
    odd = sorted(rank for of in reasons.values() for rank in of)
    lines = [f"{say_ranks(of)} gave up the pass: {reason}" for reason, of in reasons.items()]
    return one.mismatch(
        lines[0],
        odd,
        [report.given_up for report in one.reports],
        one.lines(lines),
        f"see the error of {say_ranks(odd)}; all ranks are at the end of this pass: leave its step out "
        "on all",
    )


def _kept(one: _Pass, forwards: Sequence[int]) -> MismatchError:
    """Count the passes within no_sync(), for reducers without forward passes."""
    fewest = min(forwards)
    odd, usual = one.where(count > fewest for count in forwards)
    return one.mismatch(
        f"{say_ranks(odd)} kept or lost a pass that {say_ranks(usual)} reduced",
        odd,
        forwards,
        [
            f"passes since the averages before: {_counts(forwards, one.ranks)}",
            *one.sites,
            f"gradients of different steps were added: do not use them; {USABLE}",
        ],
        "all ranks need as many passes within no_sync() before one that is reduced",
    )


def _again(one: _Pass, forwards: Sequence[int]) -> MismatchError:
    """Several backward passes after one forward pass, which all ranks must run."""
    odd, usual = one.where(not count for count in forwards)
    return one.mismatch(
        f"{say_ranks(odd)} went backward again without going forward; not {say_ranks(usual)}",
        odd,
        [bool(count) for count in forwards],
        [*one.sites, f"gradients of different steps were added: do not use them; {USABLE}"],
        "all ranks must run as many backward passes: see what decides that there is another one",
    )


def _skipping(reports: Sequence[PassReport], ranks: Sequence[int]) -> list[int]:
    """Those whose additional forward passes are all accounted for: each was thrown away.

    So a rank with other numbers of forward passes is none where it used them all, or called one elsewhere.
    """
    fewest = min(report.forwards for report in reports)
    usual = min(report.thrown_away for report in reports)
    return [
        rank
        for rank, report in zip(ranks, reports, strict=True)
        if report.forwards > fewest and report.forwards - fewest == report.thrown_away - usual
    ]


def _skipped(one: _Pass, odd: Sequence[int]) -> MismatchError:
    _, usual = one.where(rank in odd for rank in one.ranks)
    lost = {
        rank: report.thrown_site
        for rank, report in zip(one.ranks, one.reports, strict=True)
        if rank in odd
    }
    short = shorten([*lost.values(), *(report.site for report in one.reports)])
    let_go = [
        f"the outputs of the model at {short[site]} were let go on rank {rank}: no backward pass came to them"
        for rank, site in lost.items()
    ]
    forwards = [report.forwards for report in one.reports]
    return one.mismatch(
        f"{say_ranks(odd)} skipped a backward pass that {say_ranks(usual)} ran",
        odd,
        [rank in odd for rank in one.ranks],
        [
            *one.sites,
            *few(let_go),
            f"forward passes since the pass before: {_counts(forwards, one.ranks)}",
            f"gradients of different steps were averaged: do not use them; {USABLE}",
        ],
        "see what decides that backward() is left out; a forward pass that needs none belongs under "
        "torch.no_grad()",
    )


def came_twice(reason: str) -> UsageError:
    """A parameter has its gradient more than once in a pass."""
    return UsageError(
        f"DDP: {reason}",
        hint="is a backward pass run within another one? torch's checkpoint() does so unless "
        "use_reentrant=False; static_graph=True allows it",
    )


def is_partial(reports: Sequence[PassReport]) -> bool:
    """Whether what no rank has used may come in a further backward pass, which all ranks will run."""
    return all(report.awaits_more and report.missing for report in reports)


def used_by_any(reports: Sequence[PassReport], names: Sequence[str]) -> list[bool]:
    """Return for each parameter whether any rank had a gradient for it in this pass."""
    nowhere = set.intersection(*({*report.missing, *report.had} for report in reports))
    return [name not in nowhere for name in names]


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
        f"it skipped {skipped} at step {max(report.number for report in reports)}",
    )


def _by_rank(
    names: Sequence[Sequence[str]], ranks: Sequence[int]
) -> dict[str, tuple[list[int], list[int]]]:
    """Return for each name that some rank has: the ranks that have it, and those that have not."""
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
