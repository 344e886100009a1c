"""Some ranks: those of a host, of a node in the graph of waits, of a stack. The ranks view, of fewer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from distdbg.render.words import ranks_text
from distdbg.tui.cells import nbytes, one_line, share
from distdbg.tui.views.ranks import RanksView
from distdbg.view.snapshot import Snapshot


class SomeRanksPage(RanksView):
    folds: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stacks", "stacks", tooltip="stacks of these ranks")
    ]

    def __init__(self, ranks: Sequence[int], what: str = "") -> None:
        super().__init__()
        self._ranks: Sequence[int] = ranks
        self._what = what

    @property
    def crumb(self) -> str:
        return ranks_text(self._ranks)

    def keys(self) -> Sequence[Hashable]:
        known = self.snapshot.ranks
        return [rank for rank in self._ranks if rank in known]

    def over(self) -> Content | None:
        return Content(one_line(self._what)) if self._what else None

    def nothing(self) -> str:
        return "nothing is known of these ranks"

    def action_stacks(self) -> None:
        from distdbg.tui.views.stacks import StacksView

        self.top.open(StacksView(ranks=tuple(self._ranks)))


class HostPage(SomeRanksPage):
    """One host: its agent, what its ranks use, and these ranks."""

    def __init__(self, host: str) -> None:
        super().__init__(())
        self._host = host

    @property
    def crumb(self) -> str:
        return f"host {one_line(self._host)}"

    def draw(self, snapshot: Snapshot, now: float) -> None:
        self._ranks = [rank for rank, row in snapshot.ranks.items() if row.host == self._host]
        super().draw(snapshot, now)

    def over(self) -> Content | None:
        rows = [self.snapshot.ranks[rank] for rank in self._ranks]
        host = next((row for row in self.snapshot.hosts if row.host == self._host), None)
        parts = [ranks_text(self._ranks)] if self._ranks else []
        cpus = [row.cpu for row in rows if row.cpu is not None]
        if cpus:
            parts.append(f"cpu {share(sum(cpus))}")
        sizes = [row.rss_nbytes for row in rows if row.rss_nbytes is not None]
        if sizes:
            parts.append(f"memory {nbytes(sum(sizes))}")
        text = Content("   ".join(parts))
        if host is not None and host.is_lost:
            text += Content.styled("   its agent does not answer: this is old", "$text-error")
        elif host is not None and host.has_left:
            text += Content.styled("   its agent has left", "$text-muted")
        return text

    def nothing(self) -> str:
        return f"no ranks are known on {one_line(self._host)}"
