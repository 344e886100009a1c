"""Breakpoints: the rules that are armed, and the ranks at a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from distdbg.tui.cells import Cell, Tone, age, one_line
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import RankTarget
from distdbg.tui.view import SheetPage, View
from distdbg.view.feed import Action
from distdbg.view.snapshot import ArmedBreakpoint

_MAX: Final = 1000


class BreakpointsView(SheetPage, View):
    """Armed rules, then stopped ranks."""

    key: ClassVar[str] = "b"
    title: ClassVar[str] = "breakpoints"
    about: ClassVar[str] = "breakpoints that are armed, and ranks in the debugger"
    changes: ClassVar[frozenset[str]] = frozenset(("new", "take_back", "go_on"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "new", tooltip="a new breakpoint"),
        Binding("d", "take_back", "clear", tooltip="clear the selected breakpoint"),
        Binding(
            "c",
            "go_on",
            "continue",
            tooltip="continue the selected rank; without one, all stopped ranks",
        ),
    ]

    def nothing(self) -> str:
        if self.snapshot.is_over:
            return "the job is over: nothing is armed and no rank is in the debugger"
        if self.top.is_readonly:
            return "no breakpoints, and no rank is in the debugger"
        return "no breakpoints, and no rank is in the debugger; n makes one: rank=3,kind=all_reduce"

    def lines(self) -> Sequence[SheetLine]:
        return list(self._lines())

    def _lines(self) -> Iterator[SheetLine]:
        armed, stopped = self.snapshot.armed, self.snapshot.stopped
        if stopped:
            yield title("in the debugger")
            for one in stopped[:_MAX]:
                since = f"{age(self.now - one.at):>6}  " if one.at else " " * 8
                host = f"  on {one_line(one.host)}" if one.host else ""
                site = f"  at {one_line(one.site)}" if one.site else ""
                yield SheetLine(
                    (
                        Cell(f"  rank {one.rank:<5} ", Tone.ACCENT),
                        Cell(since),
                        Cell(one_line(one.why)),
                        Cell(site),
                        Cell(host, Tone.MUTED),
                    ),
                    RankTarget(one.rank),
                    hang=21,
                    is_fault=True,
                )
            if len(stopped) > _MAX:
                yield line(Cell(f"  ... and {len(stopped) - _MAX} more ranks", Tone.MUTED))
        if armed:
            if stopped:
                yield line("")
            yield title("armed")
            for rule in armed:
                yield line(
                    Cell(f"  {rule.id:>4}  ", Tone.MUTED), one_line(rule.rule), key=rule, hang=8
                )

    def action_new(self) -> None:
        if self.top.may_change(Action.BREAK):
            self.top.action_command("break ")

    def action_take_back(self) -> None:
        cursor = self.sheet.cursor
        if isinstance(cursor, ArmedBreakpoint):
            self.top.change(Action.CLEAR, id=cursor.id)
        else:
            self.top.show_message("no breakpoint is selected", "warning")

    def action_go_on(self) -> None:
        cursor = self.sheet.cursor
        if isinstance(cursor, RankTarget):
            self.top.change(Action.CONTINUE, ranks=str(cursor.rank))
        elif self.snapshot.stopped:
            self.top.change(Action.CONTINUE, ranks="all")
        else:
            self.top.show_message("no rank is in the debugger", "warning")
