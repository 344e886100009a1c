"""A verdict as one HTML file: no network, no other file, and the verdict is read without a script.

    page/page.html     the frame; $names are filled in here
    page/page.css      light and dark by what the reader prefers
    page/page.js       the timeline and the table of ops, from the JSON in the page

What is drawn from data is bounded, and what was left out is said. Every text is escaped by `text_of`; the
policy in the head lets the browser run this script alone and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from string import Template
from typing import Any, Final

from distdbg import __version__
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.record.printable import shorten
from distdbg.render.aggregate import choose_lanes, fold_lanes, lateness, meetings, waits
from distdbg.render.finding_stacks import ReportedStack, tell_stacks
from distdbg.render.grid import Grid, GridCell, make_grid, place_of_finding
from distdbg.render.page_data import page_data
from distdbg.render.source_line import lines_of, source_of
from distdbg.render.story import ago_text, story_of
from distdbg.render.svg import draw_heatmap, draw_lateness, draw_wait_graph, text_of
from distdbg.render.verdict_json import lacks_of
from distdbg.render.waitgraph import make_wait_graph
from distdbg.render.where import groups_of_deadlock, has_place, waited_text
from distdbg.render.words import (
    facts_of,
    iso_text,
    ranks_text,
    tag_text,
)

_CELLS: Final = {
    GridCell.DONE: "done",
    GridCell.IN: "in",
    GridCell.NOT_COME: "not",
    GridCell.DIFFERS: "differs",
    GridCell.FAILED: "failed",
    GridCell.UNKNOWN: "unknown",
}
_MAX_FACTS: Final = 60
_MAX_ROWS: Final = 60
_MAX_STACKS: Final = 12
_MAX_STORIES: Final = 4
_MAX_LINES: Final = 500
_MAX_SOURCE: Final = 120


def to_html(session: Session, verdict: Verdict, *, folder: str = "") -> str:
    """The page; a few hundred kilobytes for any session. Source is shown of files below `folder`."""
    found = list(meetings(session))
    late = lateness(found)
    blamed = verdict.root.ranks if verdict.root is not None else ()
    lanes = choose_lanes(session, blamed, late)
    data = page_data(session, verdict, lanes)
    heat = draw_heatmap(waits(session, found, fold_lanes(session, blamed)))
    graph = make_wait_graph(session, verdict)
    drawn = draw_wait_graph(graph)
    left_out = f" {graph.left_out} smaller ones are left out." if graph.left_out else ""
    graphs = [
        ("graph", "Who waits for whom", f"Ranks that are alike are one box.{left_out}", drawn)
    ]
    ended = f"{_counted(len(found), 'op')} and in " if found else ""
    charts = [
        ("heat", "Who has waited for whom",
         f"A row waits for a column, in {ended}what has not ended.", heat),
        ("late", "Who comes late", "By what the others lost through it.", draw_lateness(late)),
    ]  # fmt: skip
    sections = [
        ("verdict", "", _verdict(session, verdict)),
        ("where", "Where", _where(session, verdict, folder)),
        ("time", "Timeline", _timeline(data)),
        ("graph" if drawn else "heat", "Waits", _charts(graphs) + _charts(charts)),
        ("findings", "Findings", _findings(verdict)),
        ("table", "Ops", _table(data)),
        ("log", "Log", _log(session)),
        ("lacks", "Missing", _lacks(session, verdict)),
    ]
    sections = [one for one in sections if one[2]]
    nav = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections if title)
    style, script = _read("page.css"), _read("page.js")
    return Template(_read("page.html")).substitute(
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        version=text_of(__version__),
        title=text_of(f"{shorten(verdict.what, 100)} - {session.run or session.source}"),
        session=text_of(_session_line(session)),
        nav=nav,
        body="\n".join(body for _, _, body in sections),
        about=_about(session),
        data=_embed(data),
    )


def _read(name: str) -> str:
    return (files("distdbg.render") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _embed(data: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _session_line(session: Session) -> str:
    hosts = {log.host for log in session.ranks.values() if log.host}
    parts = [session.run or session.source]
    parts.append(_counted(session.world_size or len(session.ranks), "rank"))
    if len(hosts) > 1:
        parts.append(f"{len(hosts)} hosts")
    if session.attempts > 1:
        parts.append(f"attempt {session.attempt + 1} of {session.attempts}")
    if session.is_live:
        parts.append("live: the job still runs")
    return " \N{MIDDLE DOT} ".join(parts)


def _about(session: Session) -> str:
    read = "" if session.now_ns == NEVER else f", last sign of life {iso_text(session.now_ns)}"
    return text_of(f"From {session.source} ({session.format}){read}; distdbg {__version__}.")


# ------------------------------------------------------------------------------------- sections


def _verdict(session: Session, verdict: Verdict) -> str:
    root = verdict.root
    if root is not None:
        kind, tag = str(root.severity), tag_text(root)
    elif verdict.has_faults:
        kind, tag = "warning", "no single cause"
    else:
        kind, tag = "good", "nothing found" if not verdict.findings else "notes"
    parts = [
        f'<section id="verdict" class="verdict {kind}"><span class="tag {kind}">{text_of(tag)}</span>',
        f"<h1>{text_of(verdict.what)}</h1>",
    ]
    if root is not None:
        rows = []
        if root.ranks:
            hosts = sorted({session.ranks[r].host for r in root.ranks if r in session.ranks} - {""})
            on = f" on {', '.join(hosts[:4])}" + (" ..." if len(hosts) > 4 else "") if hosts else ""
            name = "about" if root.severity is Severity.NOTE else "cause"
            rows.append(
                f'<dt>{name}</dt><dd class="who">{text_of(ranks_text(root.ranks) + on)}</dd>'
            )
        if root.victims:
            time = waited_text(session, root.victims[:64])
            since = f", for {time}" if time else ""
            rows.append(f"<dt>affected</dt><dd>{text_of(ranks_text(root.victims) + since)}</dd>")
        if root.at_ns is not None:
            rows.append(f"<dt>since</dt><dd>{text_of(iso_text(root.at_ns))}</dd>")
        parts.append(f"<dl>{''.join(rows)}</dl>" if rows else "")
        parts.append(_facts(root))
        if root.advice:
            parts.append(f'<p class="hint"><b>Hint</b>{text_of(root.advice)}</p>')
    return "".join(parts) + "</section>"


def _facts(finding: Finding) -> str:
    facts = [f"<li>{text_of(text)}</li>" for text in facts_of(finding)]
    if len(facts) > _MAX_FACTS:
        left = len(facts) - _MAX_FACTS
        facts = [*facts[:_MAX_FACTS], f'<li class="quiet">{left:,} more are in the JSON</li>']
    return f'<ul class="facts">{"".join(facts)}</ul>' if facts else ""


def _where(session: Session, verdict: Verdict, folder: str) -> str:
    root = verdict.root
    if root is None:
        return ""
    if not has_place(root):
        return _reported_lines(session, root, folder)
    parts = []
    place = place_of_finding(session, root)
    if root.kind is FindingKind.DEADLOCK:
        parts.append(_members(session, root))
    elif place is not None:
        parts.append(_grid(make_grid(session, *place, blamed=root.ranks, columns=8)))
    stacks = tell_stacks(session, verdict, root, source_of(session, folder), _MAX_SOURCE)
    guilty = [stack for stack in stacks if stack.is_cause]
    shown = [*guilty[:_MAX_STACKS], *stacks[len(guilty) :][: _MAX_STACKS // 2]]
    reported = "".join(map(_stack, shown))
    stories = "".join(
        _story(session, rank, is_open=not at) for at, rank in enumerate(root.ranks[:_MAX_STORIES])
    )
    columns = ""
    if reported or stories:
        left = f"<div><h3>Stacks</h3>{reported}</div>" if reported else ""
        right = (
            f"<div><h3>What the ranks of the cause did last</h3>{stories}</div>" if stories else ""
        )
        columns = f'<div class="two">{left}{right}</div>'
    body = "".join(parts) + columns
    return f'<section id="where"><h2>Where it happened</h2>{body}</section>' if body else ""


def _reported_lines(session: Session, root: Finding, folder: str) -> str:
    """What is written where a finding points to that has no stacks."""
    lines = "\n".join(
        f"{text_of(str(frame))}\n    {text_of(line)}"
        for frame, line in lines_of(session, root, source_of(session, folder), _MAX_SOURCE)
    )
    return f'<section id="where"><h2>The lines</h2><pre>{lines}</pre></section>' if lines else ""


def _members(session: Session, root: Finding) -> str:
    """A table of one group would show who waits in another as a culprit."""
    members = [
        f"<li>'{text_of(label)}': {text_of(ranks_text(ranks))}</li>"
        for label, ranks in groups_of_deadlock(session, root)
    ]
    return (
        f"<div><h3>Members of the groups</h3><ul>{''.join(members)}</ul></div>" if members else ""
    )


def _grid(grid: Grid) -> str:
    heads = [
        f'<th scope="col" class="{"here" if seq == grid.seq else ""}">#{seq}<br>{text_of(name, 40)}</th>'
        for seq, name in zip(grid.seqs, grid.names, strict=True)
    ]
    rows = []
    for row in grid.rows[:_MAX_ROWS]:
        cells = []
        for cell, call in zip(row.cells, row.calls, strict=True):
            what = f"<small>{text_of(call, 60)}</small>" if call else ""
            cells.append(f'<td class="c-{_CELLS[cell]}">{cell}{what}</td>')
        rows.append(f"<tr><td>{text_of(ranks_text(row.ranks))}</td>{''.join(cells)}</tr>")
    left = len(grid.rows) - _MAX_ROWS
    more = f'<p class="about">{left:,} more kinds of rows are left out.</p>' if left > 0 else ""
    return (
        f"<p class=\"about\">Ops of group '{text_of(grid.label)}'; ranks that did the same are one row.</p>"
        f'<div class="scroll"><table class="grid"><thead><tr><th></th>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )


def _stack(stack: ReportedStack) -> str:
    lines = []
    for one in stack.frames:
        lines += [text_of(str(one.frame)), *([f"    {text_of(one.text)}"] if one.text else [])]
        lines += [f"      {text_of(note)}" for note in one.notes]
    frames = "\n".join(lines)
    return (
        f'<div class="stack"><b>{text_of(ranks_text(stack.ranks))}</b> {text_of(stack.what)}'
        f"<pre>{frames}</pre></div>"
    )


def _story(session: Session, rank: int, *, is_open: bool) -> str:
    rows = []
    for step in story_of(session, rank, 10):
        when = ago_text(session, step)
        like = (
            f' <span class="quiet">and {step.count - 1} more like it before</span>'
            if step.count > 1
            else ""
        )
        site = f' <span class="quiet">at {text_of(step.site)}</span>' if step.site else ""
        rows.append(
            f'<tr><td class="quiet when">{when}</td><td>{text_of(step.text)}{like}{site}</td></tr>'
        )
    if not rows:
        return ""
    mark = " open" if is_open else ""
    head = f"<details{mark}><summary><b>rank {rank}</b></summary>"
    return f"{head}<table>{''.join(rows)}</table></details>"


def _timeline(data: dict[str, Any]) -> str:
    shown, total, lanes = len(data["ops"]["lane"]), data["total"], len(data["lanes"])
    if not shown:
        return ""
    what = f"{_counted(shown, 'op')} of {_counted(lanes, 'rank')}"
    if shown < total:
        what = f"The last {shown:,} of {total:,} ops, of {lanes:,} of {_counted(data['ranks'], 'rank')}"
    which = (
        "" if lanes == data["ranks"] else ": those of the cause, the latest, and some of the others"
    )
    return (
        f'<section id="time"><h2>Timeline</h2><p class="about">{what}{which}. Pale: waits for others; '
        "full: data moves; hatched: has not ended. Drag to move, Ctrl and wheel to zoom, "
        "a click shows the op in the table.</p>"
        '<div class="controls"><button id="out" title="zoom out (-)">&minus;</button>'
        '<button id="in" title="zoom in (+)">+</button><button id="all" title="0">All</button>'
        '<button id="end" title="f">Where it stopped</button>'
        '<label>group <select id="group"></select></label><span class="push" id="range"></span></div>'
        '<div id="lanes"><canvas id="timeline" tabindex="0" role="img" aria-label="timeline of ranks; '
        'plus and minus zoom, arrows move"></canvas></div>'
        '<div class="legend" id="legend"></div><div id="tip" hidden></div>'
        "<noscript><p>The timeline and the table of ops need JavaScript.</p></noscript></section>"
    )


def _charts(charts: Sequence[tuple[str, str, str, str]]) -> str:
    parts = [
        f'<section id="{name}"><h2>{title}</h2><p class="about">{text_of(about)}</p>'
        f'<div class="scroll">{drawn}</div></section>'
        for name, title, about, drawn in charts
        if drawn
    ]
    return f'<div class="two">{"".join(parts)}</div>' if parts else ""


def _findings(verdict: Verdict) -> str:
    if not verdict.findings:
        return ""
    body = "".join(_finding(one) for one in _by_severity(verdict.findings))
    return f'<section id="findings"><h2>Findings</h2>{body}</section>'


def _by_severity(found: Iterable[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _finding(one: Finding) -> str:
    numbers = ", ".join(f"{name} {value:g}" for name, value in one.numbers.items())
    parts = [
        f'<details><summary><span class="tag {one.severity}">{text_of(one.kind)}</span>'
        f"{text_of(one.what)}</summary>",
        _facts(one),
        f'<p class="hint"><b>Hint</b>{text_of(one.advice)}</p>' if one.advice else "",
        f'<p class="about">{text_of(numbers)}</p>' if numbers else "",
    ]
    if one.follows:
        parts.append("<h3>Consequences</h3>" + "".join(map(_finding, one.follows)))
    return "".join(parts) + "</details>"


def _table(data: dict[str, Any]) -> str:
    if not data["ops"]["lane"]:
        return ""
    return (
        '<section id="table"><h2>Ops</h2><p class="about">Those of the timeline.</p>'
        '<div class="controls"><input id="filter" type="search" aria-label="filter the ops" '
        'placeholder="rank 3 all_reduce #4 in flight"><button id="clear">Clear</button>'
        '<span class="push" id="count"></span></div>'
        '<div class="scroll tall"><table id="ops"><thead></thead><tbody></tbody></table></div>'
        '<p><button id="more">More</button></p></section>'
    )


def _log(session: Session) -> str:
    if not session.lines:
        return ""
    lines = "\n".join(_lines(session))
    left = len(session.lines) - _MAX_LINES
    more = f"The last {_MAX_LINES} of {len(session.lines):,} lines." if left > 0 else ""
    return (
        f'<section id="log"><h2>Log lines</h2><p class="about">{more}</p>'
        f'<div class="scroll tall"><pre>{lines}</pre></div></section>'
    )


def _lines(session: Session) -> Iterator[str]:
    for line in session.lines[-_MAX_LINES:]:
        who = "" if line.rank is None else f"[rank {line.rank}] "
        yield f'<span class="source">{text_of(line.source)}</span> {text_of(who + line.text)}'


def _lacks(session: Session, verdict: Verdict) -> str:
    lacks = lacks_of(session, verdict)
    if not lacks:
        return ""
    items = "".join(f"<li>{text_of(text)}</li>" for text in lacks[:_MAX_FACTS])
    return f'<section id="lacks"><h2>What is missing</h2><ul class="facts">{items}</ul></section>'
