"""One finding: its evidence, who waits for whom, the cause and its victims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Role
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import FindingTarget, GroupTarget, OpTarget, RankTarget, of_ranks
from distdbg.tui.verdict import (
    edge_words,
    evidence_words,
    finding_at,
    finding_line,
    found_again,
    role_ranks,
    root_of,
    target_of,
)
from distdbg.tui.view import SheetPage
from distdbg.view.snapshot import OpKey, Snapshot

_MAX_FACTS: Final = 400
_MAX_EDGES: Final = 400


class FindingPage(SheetPage):
    def __init__(self, target: FindingTarget) -> None:
        super().__init__()
        self._target = target
        self._finding: Finding | None = None
        self._is_old = False

    @property
    def crumb(self) -> str:
        kind = self._target.kind
        return "finding" if kind is FindingKind.UNKNOWN else kind

    def draw(self, snapshot: Snapshot, now: float) -> None:
        path = found_again(snapshot.verdict, self._target)
        if path is not None:
            self._finding, self._is_old = finding_at(snapshot.verdict, path), False
            if self._finding is not None:
                self._target = target_of(self._finding, path)
        else:
            self._is_old = self._finding is not None
        super().draw(snapshot, now)

    def nothing(self) -> str:
        return "no longer found: it is over"

    def lines(self) -> Sequence[SheetLine]:
        return list(self._lines(self._finding)) if self._finding is not None else []

    def _lines(self, finding: Finding) -> Iterator[SheetLine]:
        if self._is_old:
            yield line(Cell("no longer found; this is how it was", Tone.MUTED))
        yield finding_line(finding, self._target, is_head=True)
        if finding.advice:
            yield line(Cell("hint: ", Tone.ACCENT), one_line(finding.advice), hang=6)
        yield from self._who(finding)
        evidence = finding.evidence
        if evidence:
            yield line("")
            yield title("evidence")
            for fact in evidence[:_MAX_FACTS]:
                yield line("  ", evidence_words(fact), key=_of_fact(fact), hang=4)
            if len(evidence) > _MAX_FACTS:
                yield line(Cell(f"  ... {len(evidence) - _MAX_FACTS} more", Tone.MUTED))
        edges = finding.edges
        if edges:
            yield line("")
            yield title("who waits for whom")
            for edge in edges[:_MAX_EDGES]:
                yield line("  ", edge_words(edge), key=RankTarget(edge.rank), hang=4)
            if len(edges) > _MAX_EDGES:
                more = f"  ... {len(edges) - _MAX_EDGES} more; the view waits folds them"
                yield line(Cell(more, Tone.MUTED))
        if finding.numbers:
            yield line("")
            yield title("measured")
            for name, value in finding.numbers.items():
                if math.isfinite(value):
                    yield line(Cell(f"  {one_line(name):<20}", Tone.MUTED), f"{value:g}")
        if finding.follows:
            yield line("")
            yield title("consequences")
            for at, one in enumerate(finding.follows):
                yield finding_line(one, target_of(one, (*self._target.path, at)))

    def _who(self, finding: Finding) -> Iterator[SheetLine]:
        victims = finding.victims
        others: tuple[int, ...] = ()
        if self._is_root():
            victims = victims or role_ranks(self.snapshot.verdict, Role.VICTIM)
            others = role_ranks(self.snapshot.verdict, Role.BYSTANDER)
            others = tuple(rank for rank in others if rank in self.snapshot.ranks)
        rows = (
            ("root", finding.ranks, Tone.FAULT, "the cause"),
            ("victims", victims, Tone.WARN, "failed or wait because of it"),
            ("bystanders", others, Tone.MUTED, "not affected"),
        )
        group, seq = one_line(finding.group), finding.seq
        known = next(
            (
                one
                for one in self.snapshot.groups
                if group and finding.group in (one.label, one.name)
            ),
            None,
        )
        if any(who for _, who, _, _ in rows) or group:
            yield line("")
        for name, who, tone, about in rows:
            if who:
                yield line(
                    Cell(f"{name:<12}", Tone.MUTED), Cell(ranks_text(who), tone),
                    Cell(f"  {about}", Tone.MUTED), key=of_ranks(who, f"{name}: {about}"), hang=12,
                )  # fmt: skip
        if group:
            key = GroupTarget(known.name) if known is not None else None
            yield line(Cell(f"{'group':<12}", Tone.MUTED), group, key=key, hang=12)
        if group and seq > 0:
            name = known.name if known is not None else group
            yield line(
                Cell(f"{'op':<12}", Tone.MUTED), f"#{seq}, on all ranks",
                key=OpTarget(OpKey(group=name, seq=seq), f"#{seq}"), hang=12,
            )  # fmt: skip

    def _is_root(self) -> bool:
        return self._finding is not None and self._finding is root_of(self.snapshot.verdict)


def _of_fact(fact: Evidence) -> object:
    return (
        RankTarget(fact.rank)
        if fact.rank is not None
        else of_ranks(fact.ranks, one_line(fact.text))
    )
