"""One rank: its facts, groups, ops in flight, last ops, and recorded stack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from distdbg.errors import DistError
from distdbg.tui.cells import Cell, Tone, age, nbytes, one_line, share, span
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import GroupTarget, HostTarget, OpTarget
from distdbg.tui.view import SheetPage
from distdbg.tui.views.ranks import medians
from distdbg.view.feed import Topic
from distdbg.view.snapshot import Bar, OpKey, RankDetail, RankRow, Snapshot

_EVERY_S: Final = 1.0
_NAMES: Final = 13


class RankPage(SheetPage):
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.GROUPS})
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "stacks", "stacks", tooltip="its stacks")]

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self._detail: RankDetail | None = None
        self._why = ""
        self._medians: dict[str, int] = {}
        self._labels: dict[str, str] = {}
        self._reported: dict[str, str] = {}
        """What the facts say of a group, by its label."""

    @property
    def crumb(self) -> str:
        return f"rank {self.rank}"

    def rank_here(self) -> int | None:
        return self.rank

    def action_stacks(self) -> None:
        from distdbg.tui.views.stacks import StacksView

        self.top.open(StacksView(ranks=(self.rank,)))

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.ranks is not self.snapshot.ranks:
            self._medians = medians(snapshot)
        if snapshot.groups is not self.snapshot.groups:
            self._labels = {group.name: group.label for group in snapshot.groups if group.label}
        super().draw(snapshot, now)
        self.keep_asking(lambda: self.feed.rank(self.rank), self._come, now, _EVERY_S)

    def _come(self, answer: RankDetail | DistError | None) -> None:
        if isinstance(answer, DistError):
            self._why = str(answer).split("\n")[0]
        elif answer is not None:
            self._detail, self._why = answer, ""
        self.redraw()

    def nothing(self) -> str:
        return f"nothing is known of rank {self.rank}"

    def lines(self) -> Sequence[SheetLine]:
        row = self.snapshot.ranks.get(self.rank)
        if row is None and self._detail is not None:
            row = self._detail.row
        return list(self._lines(row)) if row is not None else []

    def _lines(self, row: RankRow) -> Iterator[SheetLine]:
        yield _fact(
            "state", Cell(row.state, self.parts.tone(row)), f" for {age(self.now - row.state_at)}"
        )
        if row.why:
            yield _fact("why", one_line(row.why))
        if row.op:
            yield _fact("in", one_line(row.op))
        if row.site:
            yield _fact("at", one_line(row.site))
        if row.moved_at:
            yield _fact("last progress", f"{age(self.now - row.moved_at)} ago")
        uses = [
            f"{name} {text}"
            for name, text in (
                ("cpu", share(row.cpu)), ("memory", nbytes(row.rss_nbytes)),
                ("gpu", share(row.gpu)), ("gpu memory", nbytes(row.gpu_nbytes)),
            )
            if text
        ]  # fmt: skip
        if uses:
            yield _fact("uses", "  ".join(uses))
        if row.host or row.pid:
            words = f"{one_line(row.host)}" + (f", pid {row.pid}" if row.pid else "")
            yield _fact("host", words, key=HostTarget(row.host) if row.host else None)
        detail = self._detail
        self._reported = {}
        for name, value in detail.facts if detail is not None else ():
            if name.startswith("group '"):
                self._reported[name[7:-1]] = value  # beside its progress, below
            elif name != "GPU" or row.gpu_nbytes is None:
                yield _fact(one_line(name), one_line(value))
        if self._why:
            yield line(Cell(one_line(self._why), Tone.FAULT))
        yield from self._progress(row)
        if detail is None:
            return
        yield from self._bars("in flight", detail.in_flight)
        if detail.stack:
            yield line("")
            yield title("stack of the op, as recorded")
            for frame in detail.stack:
                yield line(f"  {one_line(frame)}", hang=4)
        yield from self._bars("last ops", [bar for bar in detail.history if bar.ended is not None])

    def _progress(self, row: RankRow) -> Iterator[SheetLine]:
        if not row.seqs:
            return
        groups = {group.name: group for group in self.snapshot.groups}
        labels = {group.label: group for group in self.snapshot.groups}
        yield line("")
        yield title("groups")
        wide = min(max(len(one_line(name)) for name, _ in row.seqs), 30)
        for name, seq in row.seqs:
            group = groups.get(name) or labels.get(name)
            off = seq - self._medians.get(name, seq)
            text = f"  {one_line(name):<{wide}}  #{seq}"
            cells = [Cell(text)]
            if off:
                words = f"  {abs(off)} {'behind' if off < 0 else 'before'} the median"
                cells.append(Cell(words, Tone.WARN if off < 0 else Tone.MUTED))
            if group is not None and self.rank in group.broken:
                cells.append(Cell(f"  broken: {one_line(group.broken[self.rank])}", Tone.FAULT))
            elif group is not None and self.rank in group.closed:
                cells.append(Cell("  left", Tone.MUTED))
            if name in self._reported:
                cells.append(Cell(f"  {one_line(self._reported.pop(name))}", Tone.MUTED))
            yield line(*cells, key=GroupTarget(group.name) if group else None, hang=4)
        for name, value in self._reported.items():
            yield line(f"  {one_line(name):<{wide}}  ", Cell(one_line(value), Tone.MUTED), hang=4)

    def _bars(self, what: str, bars: Sequence[Bar]) -> Iterator[SheetLine]:
        if not bars:
            return
        yield line("")
        yield title(what)
        wide = min(max(len(one_line(bar.name)) for bar in bars), 32)
        for bar in bars:
            key = OpTarget(OpKey(rank=self.rank, number=bar.number), one_line(bar.name))
            group = one_line(self._labels.get(bar.group, bar.group))
            cells = _bar_cells(bar, wide, group, self.now)
            yield line(*cells, key=key if bar.number else None, hang=4)


def _fact(name: str, *parts: str | Cell, key: object = None) -> SheetLine:
    head = Cell(f"{name:<{_NAMES}}  ", Tone.MUTED)
    return line(head, *parts, key=key, hang=_NAMES + 2)


def _bar_cells(bar: Bar, wide: int, group: str, now: float) -> Iterator[Cell]:
    yield Cell(f"  {one_line(bar.name):<{wide}}")
    yield Cell(f"  {group:<10.10}", Tone.MUTED)
    if bar.ended is None:
        yield Cell(f"  for {age(now - bar.issued)}", Tone.WARN)
        if bar.started is None:
            yield Cell("  not all ranks have called it", Tone.MUTED)
        return
    yield Cell(f"  {span(bar.ended - bar.issued):>8}")
    waited = bar.started - bar.issued if bar.started is not None else None
    words = f"waited {span(max(waited, 0.0))}" if waited is not None else ""
    yield Cell(f"  {words:<15}", Tone.MUTED)
    yield Cell(f"  {'failed' if bar.has_failed else '':<6}", Tone.FAULT)
    yield Cell(f"  {age(now - bar.ended)} ago", Tone.MUTED)
