"""A verdict on a terminal: what somebody needs first, at 80 columns, with and without colours.

    the verdict      in a panel: what, the cause, who waits, what to do
    why              the evidence, or who waits for whom
    where            the op as a table of ranks and ops; stacks; what the guilty did last
    also found       the rest, by severity, and what is missing

Nothing is shown by colour alone. Only what stands here imports rich.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from distdbg.diagnose.alike import is_alike
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import LogLine, Session
from distdbg.errors import format_ranks
from distdbg.record.durations import local_time_text
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import ReportedStack, tell_stacks
from distdbg.render.grid import Grid, GridCell, make_grid, place_of_finding
from distdbg.render.source_line import lines_of, source_of
from distdbg.render.story import StoryStep, ago_text, story_of
from distdbg.render.verdict_json import lacks_of
from distdbg.render.where import groups_of_deadlock, has_place, waited_text
from distdbg.render.words import (
    facts_of,
    ranks_text,
    safe,
    seconds_text,
    tag_text,
)

_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_CELLS: Final = {
    GridCell.DONE: "dim",
    GridCell.IN: "yellow",
    GridCell.NOT_COME: "bold red",
    GridCell.DIFFERS: "bold magenta",
    GridCell.FAILED: "red",
    GridCell.UNKNOWN: "dim italic",
}
#: Consequences without evidence of their own: the first line and the places of the ranks have it.
_SAID: Final = (FindingKind.FAILED_OP, FindingKind.STOPPED)
_MAX_FACTS: Final = 6
_MAX_ROWS: Final = 10
_MAX_STACKS: Final = 2
_MAX_FRAMES: Final = 6
_MAX_GROUPS: Final = 8
_MAX_STORIES: Final = 2
_MAX_STEPS: Final = 6
_MAX_PRINTED: Final = 8
_MAX_LETTERS: Final = 160
_MAX_FINDINGS: Final = 8
_ALL: Final = 100_000


def print_verdict(
    console: Console, session: Session, verdict: Verdict, *, verbose: bool = False, folder: str = ""
) -> None:
    """Print one session; with `verbose` all evidence of all findings, and stacks whole.

    Files below `folder`, where the reader is, are named as from there.
    """
    console.print(_panel(session, verdict))
    root = verdict.root
    if root is not None:
        _section(console, "Why", _facts(root, _ALL if verbose else _MAX_FACTS))
        if not has_place(root):
            _section(console, "The lines", _lines(console, session, root, folder))
        if has_place(root) or verbose:
            for part in _where(console, session, verdict, root, verbose, folder):
                console.print(part)
    others = [one for one in verdict.findings if one is not root]
    follows = [] if root is None else [f for f in root.follows if verbose or f.kind not in _SAID]
    if follows:
        _section(console, "Consequences", _findings(follows, verbose))
    if others:
        _section(console, "Also found" if root else "Found", _findings(others, verbose))
    lacks = lacks_of(session, verdict)
    if lacks:
        rows = [Text(safe(text)) for text in lacks]
        _section(console, "What is missing", _cut(rows, _ALL if verbose else _MAX_FACTS))


def session_line(session: Session) -> str:
    """'run 20261122-..., 8 ranks on 2 hosts, attempt 2 of 3, torch flight recorder, live: ...'."""
    hosts = {log.host for log in session.ranks.values() if log.host}
    count = session.world_size or len(session.ranks)
    parts = [f"run {session.run}" if session.run else session.source]
    on = f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
    parts.append(f"{count} rank{'s' * (count != 1)}{on}")
    if session.attempts > 1:
        parts.append(f"attempt {session.attempt + 1} of {session.attempts}")
    if session.format != "distdbg":
        parts.append(session.format)
    if session.is_live:
        parts.append("live: the job still runs")
    return safe(", ".join(parts))


# ------------------------------------------------------------------------------------ the verdict


def _panel(session: Session, verdict: Verdict) -> Panel:
    root = verdict.root
    style = _STYLES[root.severity] if root else ("yellow" if verdict.has_faults else "green")
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, style="bold")
    lines.add_column(overflow="fold")
    if root is not None:
        when = _when(session, root)
        if when:
            lines.add_row("when", Text(when))
        if root.ranks:
            lines.add_row(_blamed_as(root), _names(session, root.ranks))
        if root.victims:
            # Only some of them: thousands wait for the same.
            time = waited_text(session, root.victims[:64])
            since = f", for {time}" if time else ""
            lines.add_row("affected", Text(ranks_text(root.victims) + since))
        if root.advice:
            lines.add_row("hint", Text(safe(root.advice)))
    head = Text(safe(verdict.what), style="bold")
    body: list[RenderableType] = [head]
    if lines.row_count:
        body += [Text(""), lines]
    kind = "findings" if verdict.has_faults else "notes" if verdict.findings else "ok"
    if root is not None:
        kind = tag_text(root)
    return Panel(
        Group(*body),
        title=Text(f" {kind} ", style=f"bold {style}"),
        title_align="left",
        subtitle=Text(f" {session_line(session)} ", style="dim"),
        subtitle_align="right",
        border_style=style,
        box=ROUNDED,
        padding=(0, 1),
    )


def _when(session: Session, root: Finding) -> str:
    """'2026-11-22T04:10:00, 0.13 s before the end': what an error is looked up by in other logs."""
    when = local_time_text(root.at_ns) if root.severity is Severity.ERROR else ""
    if not when or root.at_ns is None or session.now_ns <= root.at_ns:
        return when
    ago = seconds_text(session.now_ns - root.at_ns)
    return f"{when}, {ago} {'ago' if session.is_live else 'before the end'}"


def _blamed_as(root: Finding) -> str:
    """A note names no cause: who is busy may well be right to be."""
    return "about" if root.severity is Severity.NOTE else "cause"


def _names(session: Session, ranks: Sequence[int]) -> Text:
    """'rank 3 (n04, pid 812)'."""
    log = session.ranks.get(ranks[0])
    if len(ranks) > 1 or log is None:
        return Text(ranks_text(ranks))
    facts = [log.host] if log.host else []
    facts += [f"pid {log.pid}"] if log.pid else []
    return Text(safe(ranks_text(ranks) + (f" ({', '.join(facts)})" if facts else "")))


def _facts(finding: Finding, most: int) -> list[Text]:
    rows = [Text(safe(fact)) for fact in facts_of(finding)]
    return _cut(rows, most)


# -------------------------------------------------------------------------- where it happened


def _where(
    console: Console,
    session: Session,
    verdict: Verdict,
    root: Finding,
    verbose: bool,
    folder: str,
) -> Iterator[RenderableType]:
    place = place_of_finding(session, root)
    if root.kind is FindingKind.DEADLOCK:
        yield from _members(session, root)
    elif place is not None:
        grid = make_grid(session, *place, blamed=root.ranks, columns=_column_count(console.width))
        yield from _grid(grid, _ALL if verbose else _MAX_ROWS)
    source = source_of(session, folder)
    # A long line is broken, not cut: its end may be what matters.
    reported = tell_stacks(session, verdict, root, source, _MAX_LETTERS, is_whole=verbose)
    guilty = [stack for stack in reported if stack.is_cause]
    at_cause = [_lines_in(stack) for stack in guilty]
    frames = _ALL if verbose else _MAX_FRAMES
    if reported:
        yield _head("Where they are")
        few = 2 * _MAX_STACKS if root.kind is FindingKind.DEADLOCK else _MAX_STACKS
        waiting = reported[len(guilty) :]
        for stacks, enough in ((guilty, 2 * _MAX_STACKS), (waiting, few)):
            most = _ALL if verbose else enough
            for stack in stacks[:most]:
                is_known = not (verbose or stack.is_cause) and _lines_in(stack) in at_cause
                yield _stack(stack, 0 if is_known else frames, folder)
            if len(stacks) > most:
                yield _more(len(stacks) - most, "stacks")
    # One of those that are alike tells what all of them did.
    alike = list(dict.fromkeys(stack.ranks[0] for stack in guilty)) or list(root.ranks)
    for rank in root.ranks[:32] if verbose else alike[:_MAX_STORIES]:
        steps = story_of(session, rank, 4 * _MAX_STEPS if verbose else _MAX_STEPS)
        if len(steps) > 1 or verbose:  # one alone is what the stack says
            log = session.ranks.get(rank)
            is_gone = log is not None and log.end is not None and not session.is_live
            yield _head(f"What rank {rank} did last{', before its end' if is_gone else ''}")
            yield _story(session, steps)
        printed = _printed_last(session, rank, _ALL if verbose else _MAX_PRINTED)
        if printed and root.severity is not Severity.NOTE:
            yield _head(f"What rank {rank} printed last ({safe(printed[-1].source)})")
            for line in printed:
                row = Text(safe(line.text, _MAX_LETTERS), overflow="fold")
                yield Padding(row, (0, 0, 0, 2), expand=False)


def _lines(console: Console, session: Session, root: Finding, folder: str) -> list[RenderableType]:
    """What is written where a finding points to that has no stacks: a straggler's line, a leaked work's."""
    rows: list[RenderableType] = []
    source = source_of(session, folder)
    for frame, text in lines_of(session, root, source, console.width - 4):
        rows.append(Text(safe(_near(frame, folder)), overflow="fold"))
        rows.append(Padding(Text(text, style="dim"), (0, 0, 0, 2), expand=False))
    return rows


def _near(frame: RecordedFrame, folder: str) -> str:
    """A file below the reader's folder is named as from there."""
    return str(frame._replace(file=frame.file.removeprefix(f"{folder}/")) if folder else frame)


def _members(session: Session, root: Finding) -> Iterator[RenderableType]:
    """Show the groups of a deadlock; a table of one of them would show who waits in another as a culprit."""
    groups = groups_of_deadlock(session, root)
    if groups:
        yield _head("Members of the groups")
    for label, ranks in groups[:_MAX_GROUPS]:
        text = f"'{label}': {ranks_text(ranks)}"
        yield Padding(Text(safe(text)), (0, 0, 0, 2), expand=False)
    if len(groups) > _MAX_GROUPS:
        yield _more(len(groups) - _MAX_GROUPS, "groups")


def _column_count(width: int) -> int:
    return max(2, min(7, (width - 18) // 12))


def _grid(grid: Grid, most: int) -> Iterator[RenderableType]:
    names = {name for name in grid.names if name}
    is_one = len(names) == 1
    what = f"{names.pop()} #{grid.seq}" if is_one else f"op #{grid.seq}"
    yield _head(f"Where it happened: {what} on group '{grid.label}'")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column(Text("ranks", style="dim"), no_wrap=True, max_width=24)
    for seq, name in zip(grid.seqs, grid.names, strict=True):
        head = Text(f"#{seq}", style="bold" if seq == grid.seq else "dim")
        if not is_one and name:
            head.append(f"\n{safe(name)}")
        table.add_column(head, overflow="fold", max_width=14)
    for row in grid.rows[:most]:
        cells = []
        for cell, call in zip(row.cells, row.calls, strict=True):
            text = f"{cell}\n{safe(call)}" if call else str(cell)
            cells.append(Text(text, style=_CELLS[cell]))
        table.add_row(Text(ranks_text(row.ranks).split(" ", 1)[1]), *cells)
    yield Padding(table, (0, 0, 0, 2), expand=False)
    if len(grid.rows) > most:
        yield _more(len(grid.rows) - most, "rows")


def _lines_in(stack: ReportedStack) -> list[tuple[str, int]]:
    return [(one.frame.file, one.frame.line) for one in stack.frames]


def _stack(stack: ReportedStack, most: int, folder: str) -> RenderableType:
    """`most` frames; 0: its lines are those of the cause, and are shown there."""
    head = Text(f"{ranks_text(stack.ranks)}", style="bold")
    what = safe(stack.what)
    if most == 0:
        what = what.removesuffix(":")  # no lines follow
    head.append(f" {what}" if what else "", style="not bold")
    rows: list[RenderableType] = [Padding(head, (0, 0, 0, 2), expand=False)]
    for one in stack.frames[:most]:
        line = Text(safe(_near(one.frame, folder)), overflow="fold")
        rows.append(Padding(line, (0, 0, 0, 4), expand=False))
        if one.text:
            rows.append(Padding(Text(one.text, style="dim"), (0, 0, 0, 6), expand=False))
        rows.extend(
            Padding(Text(safe(note), overflow="fold"), (0, 0, 0, 8), expand=False)
            for note in one.notes
        )
    if most == 0:
        head.append(", at the same lines", style="not bold")
    elif len(stack.frames) > most:
        left = len(stack.frames) - most
        rows.append(_more(left, "frame" if left == 1 else "frames"))
    return Group(*rows)


def _story(session: Session, steps: Sequence[StoryStep]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for step in steps:
        line = Text(safe(step.text, _MAX_LETTERS))
        if step.count > 1:
            line.append(f", and {step.count - 1} more like it before", style="dim")
        if step.site:
            line.append(f" at {safe(step.site)}", style="dim")
        table.add_row(Text(ago_text(session, step)), line)
    return Padding(table, (0, 0, 0, 2), expand=False)


# ------------------------------------------------------------------------------------ the rest


def _findings(found: Iterable[Finding], verbose: bool) -> list[RenderableType]:
    order = list(Severity)
    rows: list[RenderableType] = []
    for one in sorted(found, key=lambda finding: order.index(finding.severity)):
        line = Text(f"{one.severity}: ", style=f"bold {_STYLES[one.severity]}")
        line.append(safe(one.what), style="default not bold")
        if not verbose:
            rows.append(line)
            continue
        parts: list[RenderableType] = [line]
        parts += [Padding(fact, (0, 0, 0, 2), expand=False) for fact in _facts(one, _ALL)]
        if one.advice:
            parts.append(Padding(Text(f"hint: {safe(one.advice)}"), (0, 0, 0, 2), expand=False))
        parts += [
            Padding(part, (0, 0, 0, 2), expand=False) for part in _findings(one.follows, verbose)
        ]
        rows.append(Group(*parts))
    if verbose or len(rows) <= _MAX_FINDINGS:
        return rows
    left = len(rows) - _MAX_FINDINGS + 1
    return [
        *rows[: _MAX_FINDINGS - 1],
        Text(f"... {left} more; --verbose shows them", style="dim"),
    ]


def _cut(rows: list[Text], most: int) -> list[Text]:
    if len(rows) <= most:
        return rows
    left = len(rows) - most + 1
    return [*rows[: most - 1], Text(f"... {left} more; --verbose shows them", style="dim")]


def _more(count: int, what: str) -> RenderableType:
    return Padding(
        Text(f"... {count} more {what}; --verbose shows them", style="dim"), (0, 0, 0, 2)
    )


def _head(text: str) -> RenderableType:
    return Text(f"\n{safe(text)}", style="bold")


def _section(console: Console, title: str, rows: Sequence[RenderableType]) -> None:
    if not rows:
        return
    console.print(_head(title))
    for row in rows:
        console.print(Padding(row, (0, 0, 0, 2), expand=False))


def attempt_lines(earlier: Sequence[tuple[Session, Verdict]], last: Verdict) -> Iterator[Text]:
    """The attempts before the last one, those that failed alike in one line; and whether it failed so too."""
    groups: list[list[tuple[Session, Verdict]]] = []
    for one in earlier:
        known = next((group for group in groups if _is_same(group[0][1], one[1])), None)
        if known is None:
            groups.append([one])
        else:
            known.append(one)
    for group in groups:
        session, verdict = group[-1]
        numbers = [one.attempt for one, _ in group]
        style = _STYLES[verdict.root.severity] if verdict.root else "green"
        which = f"attempt{'s' * (len(numbers) > 1)} {format_ranks(n + 1 for n in numbers)}"
        options = f"--attempt {numbers[-1]}"
        line = Text(f"{which} of {session.attempts} ({options}): ", style=f"bold {style}")
        line.append(safe(verdict.what), style="default not bold")
        if _is_same(verdict, last):
            line.append("; the last one: the same cause", style="bold")
        yield line


def _is_same(one: Verdict, other: Verdict) -> bool:
    """Whether two attempts failed alike; well is not alike."""
    if one.root is None or other.root is None:
        return False
    return one.root.kind is other.root.kind and is_alike(one.what, other.what)


def _printed_last(session: Session, rank: int, most: int) -> list[LogLine]:
    """The last lines of a rank; those of stderr where there are any: they tell of failures."""
    lines = [line for line in session.lines if line.rank == rank and line.text.strip()]
    errors = [line for line in lines if line.source.startswith("stderr")]
    return (errors or lines)[-most:]
