"""Findings: the verdict, its evidence and hints; then the others by severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from distdbg.diagnose.finding import Finding
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import FindingTarget
from distdbg.tui.verdict import (
    edge_words,
    evidence_words,
    finding_line,
    ordered,
    root_of,
    target_of,
)
from distdbg.tui.view import SheetPage, View

_MAX_FACTS: Final = 4
_MAX_OF_ROOT: Final = 10
_VERDICT: Final = "verdict"


class FindingsView(SheetPage, View):
    """The verdict on top; a block per finding."""

    key: ClassVar[str] = "f"
    title: ClassVar[str] = "findings"
    about: ClassVar[str] = "the verdict, its evidence and advice; then all other findings"

    def nothing(self) -> str:
        if self.snapshot.verdict is None and not self.snapshot.is_over:
            return "no problem found so far"
        return "nothing is wrong"

    def lines(self) -> Sequence[SheetLine]:
        snapshot = self.snapshot
        findings = ordered(snapshot.verdict)
        if not findings and not snapshot.lines and not snapshot.abort:
            return ()
        return list(self._lines(findings))

    def _lines(self, findings: Sequence[tuple[int, Finding]]) -> Iterator[SheetLine]:
        snapshot = self.snapshot
        root = root_of(snapshot.verdict)
        yield from self._verdict(next((one for one in findings if one[1] is root), None))
        if snapshot.abort:
            yield SheetLine(
                (Cell("aborted: ", Tone.FAULT), Cell(one_line(snapshot.abort))),
                hang=9,
                is_fault=True,
            )
        others = [(at, one) for at, one in findings if one is not root]
        if others:
            if snapshot.lines or root is not None or snapshot.abort:
                yield line("")
            yield title("other findings" if root is not None else "findings")
        for at, finding in others:
            target = target_of(finding, (at,))
            yield finding_line(finding, target)
            facts = [evidence_words(fact) for fact in finding.evidence]
            yield from _about(finding, facts, target, _MAX_FACTS)
        lacks = snapshot.verdict.lacks if snapshot.verdict is not None else ()
        if lacks:
            yield line("")
            yield title("missing data")
            for text in lacks:
                yield line("  ", one_line(text), hang=4)

    def _verdict(self, root: tuple[int, Finding] | None) -> Iterator[SheetLine]:
        """The lines for people, and what the root cause has beyond them."""
        reported = [one_line(one) for one in self.snapshot.lines]
        finding = root[1] if root is not None else None
        target = target_of(root[1], (root[0],)) if root is not None else None
        what = one_line(finding.what) if finding is not None else ""
        if what and what not in reported[:1]:
            reported.insert(0, what)
        for at, text in enumerate(reported):
            lead = len(text) - len(text.lstrip())
            yield SheetLine(
                tuple(_marked(text)) if at else (Cell(text, Tone.FAULT),),
                target,
                hang=lead + 2,
                is_fault=at == 0,
                block=_VERDICT,
            )
        if finding is None or target is None:
            return
        facts = [evidence_words(fact) for fact in finding.evidence]
        facts = facts or [edge_words(edge) for edge in finding.edges]
        said = "\n".join(reported)
        for one in _about(finding, [f for f in facts if f not in said], target, _MAX_OF_ROOT):
            if "".join(cell.text for cell in one.cells).strip() not in said:
                yield replace(one, cells=(Cell("  "), *one.cells[1:]), hang=4, block=_VERDICT)


def _marked(text: str) -> Iterator[Cell]:
    head, hint, rest = text.partition("hint: ")
    if head.strip() or not hint:
        yield Cell(text)
    else:
        yield from (Cell(head), Cell(hint, Tone.ACCENT), Cell(rest))


def _about(
    finding: Finding, facts: Sequence[str], target: FindingTarget, most: int
) -> Iterator[SheetLine]:
    """Its facts, what follows from it, and the advice."""
    rows: list[tuple[Cell, ...]] = [(Cell(text),) for text in facts[:most]]
    if len(facts) > most:
        rows.append((Cell(f"... {len(facts) - most} more; Enter shows all", Tone.MUTED),))
    rows += [
        (Cell("then: ", Tone.MUTED), Cell(one_line(one.what)))
        for one in finding.follows[:_MAX_FACTS]
    ]
    if finding.advice:
        rows.append((Cell("hint: ", Tone.ACCENT), Cell(one_line(finding.advice))))
    for row in rows:
        yield replace(line(" " * 9, *row, key=target, hang=11), block=target.path)
