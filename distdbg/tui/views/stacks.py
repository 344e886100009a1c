"""Stacks: where ranks are now, equal ones once. Taken when the view is opened and when it is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from distdbg.errors import DistError
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, age, one_line
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import of_ranks
from distdbg.tui.view import SheetPage, View
from distdbg.view.snapshot import Snapshot, StackGroup, Stacks

#: So many frames of an unfolded stack of the main thread are seen at first.
_MAX_FRAMES: Final = 8
#: So many stacks are unfolded at first, those of most ranks.
_MAX_UNFOLDED: Final = 40
_Place = tuple[str, tuple[str, ...]]


class StacksView(SheetPage, View):
    """A block per stack, that of most ranks first."""

    key: ClassVar[str] = "s"
    title: ClassVar[str] = "stacks"
    about: ClassVar[str] = "where each rank is in its program; equal stacks once"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "R",
            "again",
            "again",
            tooltip="take the stacks again; with a filter, of the ranks that are seen",
        ),
        Binding("N", "native", "native", tooltip="with native frames, or without"),
        Binding("space", "fold", "fold", tooltip="fold or unfold this stack"),
        ("plus", "all(True)", "unfold all"),
        ("minus", "all(False)", "fold all"),
    ]

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        super().__init__()
        self._ranks: tuple[int, ...] | None = tuple(ranks) if ranks is not None else None
        self._found: Stacks | None = None
        self._failed = ""
        self._began: float | None = None
        """Since when stacks are being taken; None: they are not."""
        self._has_asked = False
        self._native = False
        #: What was folded or unfolded by hand.
        self._folds: dict[_Place, bool] = {}
        self._made: object = None
        """What the lines of the stacks were made of."""
        self._body: list[SheetLine] = []
        self._order: list[StackGroup] = []
        self._open: set[_Place] = set()
        """What is unfolded unless a hand has folded it."""

    @property
    def crumb(self) -> str:
        return self.title if self._ranks is None else f"stacks of {ranks_text(self._ranks)}"

    def rank_here(self) -> int | None:
        here = super().rank_here()
        if here is None and self._ranks is not None and len(self._ranks) == 1:
            return self._ranks[0]
        return here

    def target(self) -> object:
        cursor = self.sheet.cursor
        if isinstance(cursor, StackGroup):
            return of_ranks(cursor.ranks, "at " + cursor.frames[0] if cursor.frames else "")
        return cursor

    def on_hide(self) -> None:
        # A user who comes back from a detail sees what was there; from elsewhere, what is now.
        if self not in self.top.trail:
            self._has_asked = False

    # ------------------------------------------------------------------------------- asking

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if not self._has_asked:
            self._has_asked = True
            self._take(self._ranks, now)
        super().draw(snapshot, now)

    def _take(self, ranks: tuple[int, ...] | None, now: float) -> None:
        if self._began is not None:
            return
        self._began, native = now, self._native

        def question() -> Stacks | DistError:
            try:
                return self.feed.stacks(ranks, native)
            except DistError as error:
                return error

        self.ask_feed(question, self._come)

    def _come(self, answer: Stacks | DistError) -> None:
        self._began = None
        if isinstance(answer, DistError):
            self._failed = str(answer).split("\n")[0]
        else:
            self._found, self._failed = answer, ""
            self._order = sorted(
                answer.groups, key=lambda one: (not one.is_main, -len(one.ranks), one.ranks)
            )
            self._open = {_place(one) for one in self._order[:_MAX_UNFOLDED] if one.is_main}
        self.redraw()

    def action_again(self) -> None:
        ranks = self._ranks
        if self.sheet.filter is not None and self._found is not None:
            keys = {one.key for one in self.sheet.lines if isinstance(one.key, StackGroup)}
            seen = sorted({rank for key in keys for rank in key.ranks})
            ranks = tuple(seen) or ranks
        self._take(ranks, self.top.now())
        self.redraw()

    def action_native(self) -> None:
        self._native = not self._native
        self.action_again()

    # ------------------------------------------------------------------------------- folding

    def action_fold(self) -> None:
        cursor = self.sheet.cursor
        if isinstance(cursor, StackGroup):
            self._folds[_place(cursor)] = not self._is_folded(cursor)
            self.redraw()
            self.sheet.move_to(cursor)

    def action_all(self, unfold: bool) -> None:
        for group in self._order:
            self._folds[_place(group)] = not unfold
        self.redraw()

    def _is_folded(self, group: StackGroup) -> bool:
        place = _place(group)
        return self._folds.get(place, place not in self._open)

    # ------------------------------------------------------------------------------- what is shown

    def nothing(self) -> str:
        if self._began is not None:
            return self._taking()
        if self._failed:
            return self._failed
        if self.snapshot.is_over:
            return "the job is over, and no stacks were recorded"
        return "no stacks were found"

    def _taking(self) -> str:
        whom = ranks_text(self._ranks) if self._ranks is not None else "all ranks"
        since = max(self.now - self._began, 0.0) if self._began is not None else 0.0
        return f"taking the stacks of {whom} ..." + (f" {age(since)}" if since >= 1 else "")

    def lines(self) -> Sequence[SheetLine]:
        return list(self._lines(self._found)) if self._found is not None else ()

    def _lines(self, found: Stacks) -> Iterator[SheetLine]:
        if not found.groups and not found.failed:
            return
        if self._began is not None:
            yield replace(line(Cell(self._taking(), Tone.ACCENT)), is_title=True)
        elif self._failed:
            yield replace(line(Cell(self._failed, Tone.FAULT)), is_title=True)
        else:
            ago = f", {age(self.now - found.at)} ago" if found.at else ""
            native = ", with native frames" if self._native else ""
            words = f"{one_line(found.how) or 'taken'}{ago}{native}"
            yield replace(line(Cell(words, Tone.MUTED)), is_title=True)
        rows = self.snapshot.ranks
        faulty = frozenset(rank for rank, row in rows.items() if self.parts.is_fault(row))
        made = (found, dict(self._folds), faulty)
        if made != self._made:
            self._made = made
            self._body = [one for group in self._order for one in self._block(group, faulty)]
        yield from self._body
        if found.failed:
            yield title("not taken")
            for why, ranks in _alike(found.failed):
                yield replace(
                    line(
                        f"  {ranks_text(ranks)}: ", Cell(why, Tone.FAULT),
                        key=of_ranks(ranks, why), hang=4,
                    ),
                    is_fault=True,
                )  # fmt: skip

    def _block(self, group: StackGroup, faults: frozenset[int]) -> Iterator[SheetLine]:
        is_folded = self._is_folded(group)
        count = len(group.ranks)
        faulty = group.is_main and not faults.isdisjoint(group.ranks)
        head = [
            Cell("▸ " if is_folded else "▾ ", Tone.MUTED),
            Cell(ranks_text(group.ranks), Tone.TITLE),
            Cell(f" ({count})" if count > 1 else "", Tone.MUTED),
            Cell(f"  {one_line(group.thread)}" if group.thread else "", Tone.MUTED),
        ]
        if group.holds_gil:
            head.append(Cell("  holds the GIL", Tone.WARN))
        if is_folded and group.frames:
            head.append(Cell(f"  {one_line(group.frames[0])}"))
        common = {"key": group, "block": group, "is_fault": faulty}
        yield SheetLine(tuple(head), hang=4, **common)  # type: ignore[arg-type]  # fits by name
        if is_folded:
            return
        # Unfolded by hand is unfolded wholly.
        most = len(group.frames) if self._folds.get(_place(group)) is False else _MAX_FRAMES
        for at, frame in enumerate(group.frames[:most]):
            cell = Cell(f"    {one_line(frame)}", Tone.PLAIN if at == 0 else Tone.MUTED)
            yield SheetLine((cell,), hang=6, **common)  # type: ignore[arg-type]  # fits by name
        if len(group.frames) > most:
            words = f"    ... {len(group.frames) - most} frames further out; + shows them"
            yield SheetLine((Cell(words, Tone.MUTED),), **common)  # type: ignore[arg-type]  # by name


def _place(group: StackGroup) -> _Place:
    return group.thread, group.frames


def _alike(failed: Mapping[int, str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    found: dict[str, list[int]] = {}
    for rank, why in sorted(failed.items()):
        found.setdefault(one_line(why), []).append(rank)
    for why, ranks in found.items():
        yield why, tuple(ranks)
