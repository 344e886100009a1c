"""All ops of one kind on one group: how many, how long, and which ranks are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from distdbg.tui.cells import Cell, Tone, nbytes, one_line, rate, share, span
from distdbg.tui.sheet import SheetLine, line, title
from distdbg.tui.targets import GroupTarget, OpTarget, RankTarget
from distdbg.tui.view import SheetPage
from distdbg.view.feed import Topic
from distdbg.view.snapshot import OpKey, OpRow

_BAR: Final = 30


class KindPage(SheetPage):
    """A row of the ops view in full."""

    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.OPS, Topic.GROUPS})

    def __init__(self, group: str, kind: str) -> None:
        super().__init__()
        self._group = group
        self._kind = kind

    @property
    def crumb(self) -> str:
        labels = {row.name: row.label for row in self.snapshot.groups}
        return f"{one_line(self._kind)} on {one_line(labels.get(self._group) or self._group)}"

    def nothing(self) -> str:
        return f"no {one_line(self._kind)} on {one_line(self._group)} is known any more"

    def lines(self) -> Sequence[SheetLine]:
        for row in self.snapshot.ops:
            if (row.group, row.kind) == (self._group, self._kind):
                return list(self._lines(row))
        return []

    def _lines(self, row: OpRow) -> Iterator[SheetLine]:
        for name, value, tone in (
            ("ops", f"{row.count}", Tone.PLAIN),
            ("failed", f"{row.failed}" if row.failed else "", Tone.FAULT),
            ("bytes", nbytes(row.nbytes), Tone.PLAIN),
            ("each", nbytes(row.nbytes / row.count) if row.count else "", Tone.PLAIN),
            ("takes", _two(row.p50_s, row.p99_s), Tone.PLAIN),
            ("waits", _two(row.wait_p50_s, row.wait_p99_s), Tone.PLAIN),
            ("bus bandwidth", rate(row.bus_nbytes_per_s), Tone.PLAIN),
        ):
            if value:
                yield line(Cell(f"{name:<17}", Tone.MUTED), Cell(value, tone))
        for group in self.snapshot.groups:
            if self._group in (group.name, group.label):
                yield line(
                    Cell(f"{'group':<17}", Tone.MUTED), one_line(group.label or group.name),
                    key=GroupTarget(group.name),
                )  # fmt: skip
                if group.issued:
                    seq = max(group.issued.values())
                    yield line(
                        Cell(f"{'newest op there':<17}", Tone.MUTED), f"#{seq}",
                        key=OpTarget(OpKey(group=group.name, seq=seq), f"#{seq}"),
                    )  # fmt: skip
                break
        if row.late:
            yield line("")
            yield title("late arrivals by rank")
            most = max(part for _, part in row.late) or 1.0
            for rank, part in row.late:
                bar = "█" * max(round(_BAR * part / most), 1)
                yield line(
                    f"  rank {rank:<6}", f"{share(part):>6}  ", Cell(bar, Tone.WARN),
                    key=RankTarget(rank),
                )  # fmt: skip


def _two(middle: float | None, high: float | None) -> str:
    parts = [f"p50 {span(middle)}" if middle is not None else "",
             f"p99 {span(high)}" if high is not None else ""]  # fmt: skip
    return "   ".join(part for part in parts if part)
