"""Findings: the verdict, what it is concluded from and what to do; then the others by severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import Line, line, title
from distdbg.tui.verdict import (
    Document,
    edge_words,
    evidence_words,
    finding_line,
    items,
    ordered,
    root_path,
    target_of,
    texts,
    words,
)
from distdbg.tui.view import SheetPage, View

_MOST_FACTS: Final = 4
_MOST_OF_ROOT: Final = 10


class FindingsView(SheetPage, View):
    """The verdict on top; a block per finding."""

    key: ClassVar[str] = "f"
    title: ClassVar[str] = "findings"
    about: ClassVar[str] = "the verdict, its evidence and advice; then all other findings"

    def nothing(self) -> str:
        if self.snapshot.verdict is None and not self.snapshot.is_over:
            return "no verdict yet: nothing has looked wrong so far"
        return "nothing is wrong"

    def lines(self) -> Sequence[Line]:
        snapshot = self.snapshot
        findings = ordered(snapshot.verdict)
        if not findings and not snapshot.lines and not snapshot.abort:
            return ()
        return list(self._lines(findings))

    def _lines(self, findings: Sequence[tuple[int, Document]]) -> Iterator[Line]:
        snapshot = self.snapshot
        root = root_path(snapshot.verdict)
        is_first = True
        for at, one in enumerate(snapshot.lines):
            # Its block, so that a filter or the faults leave the words together.
            yield Line(
                (Cell(one_line(one), Tone.FAULT if at == 0 else Tone.PLAIN),),
                _root_target(findings, root),
                hang=2 if at == 0 else 4,
                is_fault=at == 0,
                block="verdict",
            )
            is_first = False
        if snapshot.abort:
            yield Line(
                (Cell("aborted: ", Tone.FAULT), Cell(one_line(snapshot.abort))),
                hang=9, is_fault=True,
            )  # fmt: skip
            is_first = False
        heading = ""
        for at, finding in findings:
            wanted = "root cause" if (at,) == root else "other findings" if root else "findings"
            if wanted != heading:
                heading = wanted
                if not is_first:
                    yield _gap((at,))
                yield title(wanted)
            is_first = False
            yield from self._block(finding, (at,), (at,) == root)
        lacks = texts(snapshot.verdict, "lacks")
        if lacks:
            yield line("")
            yield title("what would make it surer")
            for text in lacks:
                yield line("  ", text, hang=4)

    def _block(self, finding: Document, path: tuple[int, ...], is_root: bool) -> Iterator[Line]:
        target = target_of(finding, path)
        yield finding_line(finding, target)
        rows = [evidence_words(fact) for fact in items(finding, "evidence")]
        if is_root and not rows:
            rows = [edge_words(edge) for edge in items(finding, "edges")[: _MOST_OF_ROOT + 1]]
        most = _MOST_OF_ROOT if is_root else _MOST_FACTS
        cells = [(Cell(text),) for text in rows[:most]]
        if len(rows) > most:
            cells.append((Cell("... Enter shows all", Tone.MUTED),))
        cells += [
            (Cell("then: ", Tone.MUTED), Cell(words(one, "what")))  # type: ignore[misc]
            for one in items(finding, "follows")[:_MOST_FACTS]
        ]
        advice = words(finding, "advice")
        if advice:
            cells.append((Cell("hint: ", Tone.ACCENT), Cell(advice)))  # type: ignore[arg-type]
        for parts in cells:
            yield replace(
                line(" " * 9, *parts, key=target, hang=11),
                block=path,
            )


def _root_target(findings: Sequence[tuple[int, Document]], root: tuple[int, ...] | None) -> object:
    return next((target_of(one, (at,)) for at, one in findings if (at,) == root), None)


def _gap(block: tuple[int, ...]) -> Line:
    return replace(line(""), block=block)
