"""Draws the waits between ranks. Pure: from rows to lines.

Ranks that wait in the same op for the same ranks are one box. What is waited for stands above those that
wait for it, and these stand further in, layer by layer. On the right, an arrow into a box comes from all
that wait for it; lines that only cross are not joined.

    ╔═ rank 3 ════════════ waits for no rank ═╗
    ║ running                                 ║
    ║ dataloader.py:210 (__next__)            ║◀─╮
    ╚═════════════════════════════════════════╝  │
       ┌─ ranks 0-2 ──────────────── 31 s ──┐    │
       │ all_reduce #42 on group 'dp'       ├────╯
       │ train.py:88 (step)                 │
       └────────────────────────────────────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, age, one_line, shorten, tone_of
from distdbg.tui.rank_roles import NOBODY, RankRoles
from distdbg.tui.sheet import SheetLine
from distdbg.tui.targets import of_ranks
from distdbg.tui.wrapped import Row
from distdbg.view.snapshot import RankRow, WaitRow

MAX_NODES: Final = 24
#: Ranks of a deadlock are boxes of their own while they are so few.
MAX_ALONE: Final = 16
_MAX_LANES: Final = 8
_LANE: Final = 3
_STEP: Final = 3
_DEEPEST: Final = 4
_NARROWEST: Final = 24
#: So many ranks of one list are compared; more are as good as equal when their number is.
_ENOUGH: Final = 64
_MAX_MERGES: Final = 4

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_JOINTS: Final = {
    _UP | _DOWN: "│", _LEFT | _RIGHT: "─", _UP | _LEFT: "╯", _DOWN | _LEFT: "╮",
    _UP | _DOWN | _LEFT: "┤", _LEFT | _RIGHT | _UP: "┴", _LEFT | _RIGHT | _DOWN: "┬",
    _UP | _DOWN | _LEFT | _RIGHT: "┼", _LEFT: "─",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitNode:
    """Ranks that are alike."""

    ranks: tuple[int, ...]
    on: tuple[int, ...] = ()
    """The ranks that it waits for."""
    is_any: bool = False
    text: str = ""
    site: str = ""
    tone: Tone = Tone.PLAIN
    is_core: bool = False
    is_cause: bool = False
    since: float | None = None
    to: tuple[int, ...] = ()
    """Indexes of the nodes that it waits for."""
    layer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitBoxes:
    """The boxes from top to bottom; `left_out` more, with so many ranks, are not there."""

    nodes: tuple[WaitNode, ...] = ()
    left_out: int = 0
    left_out_ranks: int = 0


def fold_waits(
    waits: Iterable[WaitRow],
    rows: Mapping[int, RankRow],
    parts: RankRoles = NOBODY,
    most: int = MAX_NODES,
) -> WaitBoxes:
    """Make as few nodes as there are different waits; of too many those nearest to what is waited for."""
    first: dict[int, WaitRow] = {}
    for wait in waits:
        first.setdefault(wait.rank, wait)
    core = {rank for rank, wait in first.items() if not wait.can_go_on}
    is_alone = len(core) <= MAX_ALONE
    awaited: set[int] = set()
    classes: dict[object, list[int]] = {}
    for rank in sorted(first):
        wait = first[rank]
        is_core = rank in core
        on = wait.on if len(wait.on) <= _ENOUGH else _short(wait.on)
        own = rank if is_core and is_alone else -1
        kind = (own, is_core, on, wait.is_any, wait.op, wait.site)
        found = classes.get(kind)
        if found is None:
            classes[kind] = [rank]
            awaited.update(wait.on)
        else:
            found.append(rank)
    others = _others(awaited.difference(first), rows)
    alike = _merged([*classes.values(), *others], first, core)
    alike.sort(key=lambda ranks: (ranks[0] not in core, ranks[0] in first, -len(ranks), ranks[0]))
    order = _in_layers(alike, first, core)
    kept, lost = order[:most], order[most:]
    place = {rank: i for i, (at, _) in enumerate(kept) for rank in alike[at]}
    nodes = []
    for at, layer in kept:
        ranks = tuple(alike[at])
        if ranks[0] in first:
            node = _waiting([first[rank] for rank in ranks], ranks)
        else:
            node = _waited_for(ranks, rows)
        if not parts.causes.isdisjoint(ranks):
            node = replace(node, tone=Tone.FAULT, is_cause=True)
        elif not parts.victims.isdisjoint(ranks):
            node = replace(node, tone=Tone.VICTIM)
        to = tuple(sorted({place[rank] for rank in node.on if rank in place}))
        nodes.append(replace(node, layer=layer, to=to))
    return WaitBoxes(
        nodes=tuple(nodes),
        left_out=len(lost),
        left_out_ranks=sum(len(alike[at]) for at, _ in lost),
    )


def _merged(
    alike: list[list[int]], first: Mapping[int, WaitRow], core: set[int]
) -> list[list[int]]:
    """Boxes that wait in the same op for the same boxes are one: pairs of two rows of ranks, say."""
    for _ in range(_MAX_MERGES):
        owner = {rank: at for at, ranks in enumerate(alike) for rank in ranks}
        merged: dict[object, list[int]] = {}
        for at, ranks in enumerate(alike):
            wait = first.get(ranks[0])
            kind: object = at
            if wait is not None and ranks[0] not in core:
                on = wait.on
                to: object = (
                    owner.get(on[0])
                    if len(on) == 1
                    else frozenset(owner.get(rank) for rank in on[:_ENOUGH])
                )
                kind = (to, wait.is_any, wait.op, wait.site)
            merged.setdefault(kind, []).extend(ranks)
        if len(merged) == len(alike):
            break
        alike = [sorted(ranks) for ranks in merged.values()]
    return alike


def _short(on: tuple[int, ...]) -> tuple[int, ...]:
    half = _ENOUGH // 2
    return (*on[:half], len(on), *on[-half:])


def _waiting(alike: Sequence[WaitRow], ranks: tuple[int, ...]) -> WaitNode:
    one = alike[0]
    return WaitNode(
        ranks=ranks,
        on=_all_of(alike),
        is_any=one.is_any and len(one.on) > 1,
        text=one_line(one.op) or "waits",
        site=one_line(one.site),
        is_core=not one.can_go_on,
        since=min((wait.since for wait in alike if wait.since is not None), default=None),
    )


def _all_of(alike: Sequence[WaitRow]) -> tuple[int, ...]:
    lists = {_short(wait.on) if len(wait.on) > _ENOUGH else wait.on: wait.on for wait in alike}
    return tuple(sorted({rank for on in lists.values() for rank in on}))


def _others(ranks: Iterable[int], rows: Mapping[int, RankRow]) -> list[list[int]]:
    """Those that are waited for and wait for nobody; together where they do the same in the same place."""
    classes: dict[object, list[int]] = {}
    for rank in sorted(ranks):
        row = rows.get(rank)
        kind = (row.state, row.why, row.op, row.site) if row is not None else None
        classes.setdefault(kind, []).append(rank)
    return list(classes.values())


def _waited_for(ranks: tuple[int, ...], rows: Mapping[int, RankRow]) -> WaitNode:
    row = rows.get(ranks[0])
    if row is None:
        return WaitNode(ranks=ranks, text="nothing is known of it", tone=Tone.MUTED)
    what = one_line(row.why or row.op)
    return WaitNode(
        ranks=ranks,
        text=f"{row.state}: {what}" if what else str(row.state),
        site=one_line(row.site),
        tone=tone_of(row.state),
    )


def _in_layers(
    alike: Sequence[Sequence[int]], first: Mapping[int, WaitRow], core: set[int]
) -> list[tuple[int, int]]:
    """Index and layer of each: one further in than what it waits for; a cycle in the order of its waiting."""
    owner = {rank: at for at, ranks in enumerate(alike) for rank in ranks}
    targets: list[list[int]] = []
    waiters: dict[int, list[int]] = {}
    for at, ranks in enumerate(alike):
        wait = first.get(ranks[0])
        on = wait.on[:_ENOUGH] if wait is not None else ()
        targets.append(list(dict.fromkeys(owner[rank] for rank in on if rank in owner)))
        for to in targets[at]:
            waiters.setdefault(to, []).append(at)
    layer: dict[int, int] = {}
    order: list[tuple[int, int]] = []

    def spread(begin: Iterable[int]) -> None:
        todo = deque(begin)
        layer.update(dict.fromkeys(todo, 0))
        while todo:
            at = todo.popleft()
            order.append((at, layer[at]))
            for waiter in waiters.get(at, ()):
                if waiter not in layer:
                    layer[waiter] = layer[at] + 1
                    todo.append(waiter)

    cyclic = _in_order_of_waiting(
        [at for at, ranks in enumerate(alike) if ranks[0] in core], targets
    )
    spread([*cyclic, *(at for at, ranks in enumerate(alike) if ranks[0] not in first)])
    for at in range(len(alike)):
        if at not in layer:  # a cycle that nobody called a deadlock
            spread([at])
    return order


def _in_order_of_waiting(core: Sequence[int], targets: Sequence[Sequence[int]]) -> list[int]:
    """The core, each before the one that it waits for where that can be."""
    members = set(core)
    seen: dict[int, None] = {}
    for begin in core:
        at: int | None = begin
        while at is not None and at not in seen:
            seen[at] = None
            at = next((to for to in targets[at] if to in members and to not in seen), None)
    return list(seen)


# ------------------------------------------------------------------------------------ drawing


def draw_waits(graph: WaitBoxes, width: int, now: float) -> list[SheetLine]:
    """A line of four rows for each box."""
    nodes = graph.nodes
    lanes, dropped = _lanes(nodes)
    count = max(lanes.values(), default=-1) + 1
    gutter = 2 + _LANE * count if count else 0
    right = max(width - gutter - 2, _NARROWEST + _STEP * _DEEPEST)
    right = min(right, max((_wish(node) for node in nodes), default=0))
    wires = _wires(nodes, lanes, right)
    lines = []
    for at, node in enumerate(nodes):
        rows = []
        for i, row in enumerate(_box(node, right, now)):
            rows.append((*row, *_strung(wires.get(4 * at + i, {}), right)))
        key = of_ranks(node.ranks, node.text)
        lines.append(
            SheetLine(rows[0], key, tuple(rows[1:]), is_fault=node.is_core or node.is_cause)
        )
    if graph.left_out:
        text = (
            f"... {graph.left_out} more kinds of waiting, of {graph.left_out_ranks} ranks; v lists"
        )
        lines.append(SheetLine((Cell(text, Tone.MUTED),)))
    if dropped:
        text = f"{dropped} arrows are not drawn: there is no room; v lists all"
        lines.append(SheetLine((Cell(text, Tone.MUTED),)))
    return lines


def _indent(node: WaitNode) -> int:
    return _STEP * min(node.layer, _DEEPEST)


def _tag(node: WaitNode, now: float) -> str:
    since = age(now - node.since) if node.since is not None else ""
    if node.is_core:
        return f"deadlock, {since}" if since else "deadlock"
    if node.is_cause:
        return f"cause, {since}" if since else "cause"
    return since if node.on else "waits for no rank"


def _first(node: WaitNode) -> str:
    return f"{node.text}, for any of {ranks_text(node.on)}" if node.is_any else node.text


def _wish(node: WaitNode) -> int:
    """Where its right side would like to be."""
    texts = (len(_first(node)), len(node.site), len(ranks_text(node.ranks)) + 24)
    return _indent(node) + max(max(texts) + 3, _NARROWEST)


def _box(node: WaitNode, right: int, now: float) -> list[Row]:
    indent = _indent(node)
    inner = right - indent - 1  # between the sides
    is_heavy = node.is_core or not node.on
    h, v, tl, tr, bl, br = "═║╔╗╚╝" if is_heavy else "─│┌┐└┘"
    tone = Tone.FAULT if node.is_core else node.tone
    tone = Tone.MUTED if tone is Tone.PLAIN and node.on else tone
    tag = _tag(node, now)
    name = shorten(ranks_text(node.ranks), inner - len(tag) - 8)
    pad = Cell(" " * indent)
    fill = h * max(inner - len(name) - len(tag) - (6 if tag else 3), 0)
    head: list[Cell] = [pad, Cell(f"{tl}{h} ", tone), Cell(name, Tone.TITLE)]
    if tag:
        head += [Cell(f" {fill} ", tone), Cell(tag, tone), Cell(f" {h}{tr}", tone)]
    else:
        head += [Cell(f" {fill}{tr}", tone)]
    out = ("╟" if is_heavy else "├") if node.to else v
    return [
        tuple(head),
        _inside(pad, v, out, _first(node), inner, tone, Tone.PLAIN if node.on else node.tone),
        _inside(pad, v, v, node.site, inner, tone, Tone.MUTED),
        (pad, Cell(f"{bl}{h * inner}{br}", tone)),
    ]


def _inside(pad: Cell, left: str, right: str, text: str, inner: int, tone: Tone, own: Tone) -> Row:
    words = shorten(text, inner - 2)
    return (pad, Cell(f"{left} ", tone), Cell(f"{words:<{inner - 1}}", own), Cell(right, tone))


def _out(at: int) -> int:
    return 4 * at + 1


def _in(at: int) -> int:
    return 4 * at + 2


def _lanes(nodes: Sequence[WaitNode]) -> tuple[dict[int, int], int]:
    """Which node's arrow runs in which lane, the shortest innermost; and how many arrows have no lane."""
    spans: dict[int, tuple[int, int]] = {}
    count: dict[int, int] = {}
    for at, node in enumerate(nodes):
        for to in node.to:
            low, high = spans.get(to, (_in(to), _in(to)))
            spans[to] = (min(low, _out(at)), max(high, _out(at)))
            count[to] = count.get(to, 0) + 1
    lanes: dict[int, int] = {}
    taken: list[list[tuple[int, int]]] = []
    dropped = 0
    for to in sorted(spans, key=lambda to: (spans[to][1] - spans[to][0], to)):
        low, high = spans[to]
        for lane in range(_MAX_LANES):
            if lane == len(taken):
                taken.append([])
            if all(high < a or b < low for a, b in taken[lane]):
                taken[lane].append((low, high))
                lanes[to] = lane
                break
        else:
            dropped += count[to]
    return lanes, dropped


Wires = dict[int, dict[int, tuple[str, Tone]]]


def _wires(nodes: Sequence[WaitNode], lanes: Mapping[int, int], right: int) -> Wires:
    """What is drawn right of the boxes, by row and column."""
    joints: dict[tuple[int, int], int] = {}
    across: dict[tuple[int, int], Tone] = {}
    tones: dict[tuple[int, int], Tone] = {}
    heads: dict[tuple[int, int], Tone] = {}

    def column(lane: int) -> int:
        return right + 3 + _LANE * lane

    for to, lane in lanes.items():
        sources = [at for at, node in enumerate(nodes) if to in node.to]
        tone = Tone.FAULT if nodes[to].is_core and any(nodes[a].is_core for a in sources) else (
            Tone.PLAIN
        )  # fmt: skip
        rows = sorted({_in(to), *map(_out, sources)})
        at = column(lane)
        for row in range(rows[0], rows[-1] + 1):
            mask = (_UP if row > rows[0] else 0) | (_DOWN if row < rows[-1] else 0)
            joints[row, at] = joints.get((row, at), 0) | mask | (_LEFT if row in rows else 0)
            tones[row, at] = tone
        for row in rows:
            for x in range(right + 1, at):
                across[row, x] = tone if across.get((row, x)) is not Tone.FAULT else Tone.FAULT
        heads[_in(to), right + 1] = tone
    # A wire that runs on to a lane further out goes through the joint; others pass beneath.
    for (row, x), mask in joints.items():
        if (row, x) in across and mask & _LEFT:
            joints[row, x] = mask | _RIGHT
    wires: Wires = {}
    for (row, x), tone in across.items():
        wires.setdefault(row, {})[x] = ("─", tone)
    for (row, x), mask in joints.items():
        wires.setdefault(row, {})[x] = (_JOINTS.get(mask, "│"), tones[row, x])
    for (row, x), tone in heads.items():
        wires.setdefault(row, {})[x] = ("◀", tone)
    return wires


def _strung(wires: Mapping[int, tuple[str, Tone]], right: int) -> Row:
    if not wires:
        return ()
    cells: list[Cell] = []
    for x in range(right + 1, max(wires) + 1):
        text, tone = wires.get(x, (" ", Tone.PLAIN))
        if cells and cells[-1].tone is tone:
            cells[-1] = Cell(cells[-1].text + text, tone)
        else:
            cells.append(Cell(text, tone))
    return tuple(cells)
