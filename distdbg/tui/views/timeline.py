"""Timeline: ranks x time, what each was in and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from distdbg.tui.cells import Cell, Filter, one_line, span
from distdbg.tui.lanes import KINDS, ColourFamily, parts_of
from distdbg.tui.targets import OpTarget, RankTarget
from distdbg.tui.time_axis import moment
from distdbg.tui.time_lanes import TimeLanes
from distdbg.tui.view import View
from distdbg.view.feed import Topic
from distdbg.view.snapshot import Bar, OpKey, RankRow, Snapshot

#: What a living job is first shown of.
_FIRST_S: Final = 30.0
#: Lines of a living job move with time; this often is enough.
_MIN_BETWEEN_S: Final = 0.9
#: The share of a core that drawing may take while nobody types.
_MAX_SHARE: Final = 0.04
_SHORT: Final = {
    ColourFamily.REDUCE: "reduce",
    ColourFamily.GATHER: "gather",
    ColourFamily.SCATTER: "scatter",
    ColourFamily.EXCHANGE: "all_to_all",
    ColourFamily.SPREAD: "broadcast",
    ColourFamily.MESSAGE: "send, recv",
    ColourFamily.MEETING: "barrier",
    ColourFamily.OTHER: "other",
}


class TimelineView(View):
    key: ClassVar[str] = "t"
    title: ClassVar[str] = "timeline"
    about: ClassVar[str] = "ranks x time: who waited and who transferred, zoom with + and -"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.BARS, Topic.GROUPS})
    takes_filter: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "plus,equals_sign", "lanes('zoom', 1)", "zoom in", tooltip="zoom in, about the cursor"
        ),
        Binding("minus", "lanes('zoom', -1)", "zoom out", tooltip="zoom out"),
        Binding("0", "lanes('all', 0)", "all", tooltip="all of the time"),
        Binding("space", "hold", "hold", tooltip="pause, or follow the newest ops"),
        Binding("tab,full_stop", "lanes('op', 1)", "next op", tooltip="to the next op of the rank"),
        Binding("shift+tab,comma", "lanes('op', -1)", "last op", tooltip="to the op before"),
        Binding("left", "lanes('scroll', -1)", "earlier", tooltip="scroll: earlier"),
        Binding("right", "lanes('scroll', 1)", "later", tooltip="scroll: later"),
        Binding("shift+left", "lanes('scroll', -6)", "much earlier"),
        Binding("shift+right", "lanes('scroll', 6)", "much later"),
        Binding("up,k", "lanes('rank', -1)", "up", tooltip="the rank above"),
        Binding("down,j", "lanes('rank', 1)", "down", tooltip="the rank below"),
        Binding("pageup", "lanes('page', -1)", "page up"),
        Binding("pagedown", "lanes('page', 1)", "page down"),
    ]
    DEFAULT_CSS = """
    TimelineView > #op { height: 1; padding: 0 1; }
    TimelineView > #legend { height: 1; padding: 0 1; color: $foreground-muted; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._only: Filter | None = None
        self._only_faults = False
        self._drawn_at = -1.0
        self._drawn_ranks: Mapping[int, RankRow] | None = None
        self._labels: Mapping[str, str] = {}
        self.lanes = TimeLanes(self._bars)

    def compose(self) -> ComposeResult:
        yield self.lanes
        yield Static(id="op", markup=False)
        yield Static(id="legend", markup=False)

    def action_lanes(self, what: str, by: int) -> None:
        self.lanes.move(what, by)

    def action_hold(self) -> None:
        self.lanes.hold()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a replay the space bar plays it."""
        return action != "hold" or self.feed.span() is None

    def _bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        return self.feed.bars(ranks, begin, end)

    def draw(self, snapshot: Snapshot, now: float) -> None:
        pause_s = max(_MIN_BETWEEN_S, self.lanes.took_s / _MAX_SHARE)
        is_early = 0 <= now - self._drawn_at < pause_s
        if (
            is_early
            and self.feed.span() is None
            and snapshot.ranks.keys() == (self._drawn_ranks or {}).keys()
        ):
            return
        self._drawn_at, self._drawn_ranks = now, snapshot.ranks
        self._labels = {group.name: group.label for group in snapshot.groups}
        times = self.feed.span()
        began = snapshot.began if snapshot.began is not None else now - _FIRST_S
        self.lanes.show(
            [
                rank
                for rank in self.parts.first(snapshot.ranks)
                if self._is_shown(snapshot.ranks[rank])
            ],
            snapshot.ranks,
            now,
            times or (began, max(now, began + 1e-3)),
            is_replay=times is not None,
            first_s=min(_FIRST_S, max(now - began, 1.0)),
            parts=self.parts,
        )

    def _is_shown(self, row: RankRow) -> bool:
        if self._only_faults and not self.parts.is_fault(row):
            return False
        return self._only is None or self._only.fits(
            [Cell(text) for text in (str(row.rank), row.state, row.op, row.site, row.host)]
        )

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        self._only, self._only_faults = only, only_faults
        self._drawn_at = -1.0

    def first_focus(self) -> Widget:
        return self.lanes

    # ------------------------------------------------------------------------------- the cursor

    def on_time_lanes_moved(self, message: TimeLanes.Moved) -> None:
        self.query_one("#op", Static).update(self._op_line())
        self.query_one("#legend", Static).update(self._legend())

    def on_time_lanes_chosen(self, message: TimeLanes.Chosen) -> None:
        self.top.action_open()

    def on_time_lanes_sought(self, message: TimeLanes.Sought) -> None:
        if self.feed.span() is not None:
            self.feed.seek(message.at)
            self.top.tick()

    def target(self) -> object:
        """The op under the cursor; where there is none, the rank."""
        bar, rank = self.lanes.bar, self.lanes.rank
        if rank is None:
            return None
        if bar is None or not bar.number:
            return RankTarget(rank)
        key = OpKey(group=bar.group, seq=bar.seq, rank=rank, number=bar.number)
        return OpTarget(key, bar.name)

    def rank_here(self) -> int | None:
        return self.lanes.rank

    def _op_line(self) -> Content:
        lanes = self.lanes
        if lanes.rank is None:
            return Content("no rank to show")
        zero, step = lanes.whole[0], (lanes.end - lanes.begin) / 1000
        bar = lanes.bar
        if bar is None:
            at = moment(lanes.at - zero, step)
            return Content.assemble(
                (f"rank {lanes.rank}", "bold"), (f"  at {at}: in no op", "$foreground-muted")
            )
        issued, moved, ended = parts_of(bar, lanes.now)
        group = self._labels.get(bar.group, bar.group)
        words = f"  {one_line(bar.name)}" + (f" on group '{one_line(group)}'" if group else "")
        parts: list[tuple[str, str]] = [(f"rank {lanes.rank}", "bold"), (words, "bold")]
        if bar.has_failed:
            parts.append(("  failed", "bold $text-error"))
        elif bar.ended is None:
            parts.append(("  in flight", "bold $text-warning"))
        took = [f"waited {span(moved - issued)}"] if moved > issued else []
        if ended > moved:
            took.append(f"transfer {span(ended - moved)}")
        parts.append((f"  {', '.join(took)}", ""))
        parts.append((f"  from {moment(issued - zero, step)}", "$foreground-muted"))
        return Content.assemble(*parts)

    def _legend(self) -> Content:
        lanes = self.lanes
        seen = {
            KINDS.get(bar.kind, ColourFamily.OTHER) for r in lanes.in_sight for bar in lanes._of(r)
        }
        parts: list[tuple[str, str]] = []
        if not lanes.is_replay:
            parts.append(
                ("follows  " if lanes.follows else "paused: space follows  ", "$text-accent")
            )
        shown, count = len(lanes.in_sight), len(lanes.ranks)
        if shown < count:
            parts.append((f"{shown} of {count} ranks  ", ""))
        for family in _SHORT:
            if family in seen:
                colour = lanes.get_component_rich_style(f"lane--{family.name.lower()}").color
                parts.append((f"█{_SHORT[family]} ", colour.name if colour is not None else ""))
        parts.append((" ─waits █transfers ▄now and then ✗failed ▸in flight", ""))
        return Content.assemble(*parts)
