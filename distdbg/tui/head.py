"""The lines above and below a page: job, headline, breadcrumbs, keys. Pure.

Every line is cut to the width that it is given; what matters most comes first, or stays when there is no
room for the rest. What can be clicked carries the action that a key would do.

A verdict is made now and then, and its words say how long things had lasted then. Where ranks wait for one
that may still come, the headline is therefore made from the rows: their state, and how long they have waited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from textual.content import Content
from textual.style import Style

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.rank_state import RankState
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Tone, age, one_line
from distdbg.tui.keys import KeyHint, fit
from distdbg.tui.rank_roles import NOBODY, RankRoles
from distdbg.tui.verdict import root_of
from distdbg.view.snapshot import FeedLink, RankRow, Snapshot

#: What the theme calls the colour of a tone.
STYLES: Final = {
    Tone.PLAIN: "",
    Tone.MUTED: "$text-muted",
    Tone.GOOD: "$text-success",
    Tone.WARN: "$text-warning",
    Tone.VICTIM: "dim $text-warning",
    Tone.FAULT: "bold $text-error",
    Tone.ACCENT: "bold $text-accent",
    Tone.TITLE: "bold",
}
_LINKS: Final = {
    FeedLink.JOINING: Tone.WARN,
    FeedLink.LIVE: Tone.GOOD,
    FeedLink.LOST: Tone.FAULT,
    FeedLink.OVER: Tone.TITLE,
    FeedLink.REPLAY: Tone.ACCENT,
}
#: The worst first.
_ORDER: Final = (
    Tone.FAULT, Tone.WARN, Tone.VICTIM, Tone.ACCENT, Tone.TITLE, Tone.GOOD, Tone.PLAIN, Tone.MUTED,
)  # fmt: skip
#: Below this nothing is promised, but all is tried.
MIN_WIDTH: Final = 80
MIN_HEIGHT: Final = 24


#: What is found of ranks that others wait for and that are alive.
_WAITED_FOR: Final = (FindingKind.STALL, FindingKind.STUCK_RANK)
_TONES: Final = {
    Severity.ERROR: Tone.FAULT, Severity.WARNING: Tone.WARN, Severity.NOTE: Tone.VICTIM
}  # fmt: skip


def head_text(snapshot: Snapshot, now: float, title: str) -> Content:
    """Which job, how big, how long, and whether it lives."""
    parts = [snapshot.run or title]
    if snapshot.ranks or snapshot.world_size:
        count = max(len(snapshot.ranks), snapshot.world_size)
        hosts = len(snapshot.hosts) or len({row.host for row in snapshot.ranks.values()})
        seen = len(snapshot.ranks)
        few = f"{seen} of " if 0 < seen < count else ""
        parts.append(
            f"{few}{count} rank{'s' * (count != 1)}" + (f" on {hosts} hosts" if hosts > 1 else "")
        )
    if snapshot.attempt:
        parts.append(f"restart {snapshot.attempt}")
    if snapshot.began is not None:
        parts.append(age(now - snapshot.began))
    text = Content("  ".join(map(one_line, parts)) + "  ")
    text += Content.styled(one_line(link_text(snapshot, now)), STYLES[_LINKS[snapshot.link]])
    if snapshot.is_paused:
        who = f" ({', '.join(map(one_line, snapshot.held_by))})" if snapshot.held_by else ""
        text += Content.styled(f"  the clock is paused{who}", "$text-warning")
    return text


def link_text(snapshot: Snapshot, now: float) -> str:
    """'live', 'lost for 12 s: the agent of n14 does not answer'."""
    text = str(snapshot.link)
    if snapshot.link is FeedLink.LOST and snapshot.at and now > snapshot.at:
        text += f" for {age(now - snapshot.at)}"
    return text + (f": {snapshot.link_why}" if snapshot.link_why else "")


def state_text(snapshot: Snapshot, now: float, parts: RankRoles = NOBODY) -> Content:
    """How many ranks are in which state, the worst first, and what is wrong."""
    counts = Counter((row.state, parts.tone(row)) for row in snapshot.ranks.values())
    text = Content("")
    order = sorted(counts, key=lambda one: (_ORDER.index(one[1]), one[0]))
    for state in dict.fromkeys(state for state, _ in order):
        count = sum(number for (other, _), number in counts.items() if other is state)
        tone = next(tone for other, tone in order if other is state)
        text += Content.styled(f"{count} {state}  ", STYLES[tone].removeprefix("bold "))
    lost = [host.host for host in snapshot.hosts if host.is_lost]
    if snapshot.lines:
        said, tone = headline(snapshot, parts, now)
        text += Content.styled(said, "bold $text-error" if tone is Tone.FAULT else STYLES[tone])
    elif snapshot.abort:
        text += Content.styled(one_line(f"aborted: {snapshot.abort}"), "bold $text-error")
    elif lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        text += Content.styled(one_line(f"host {lost[0]}{more} does not answer"), "$text-warning")
    elif not snapshot.ranks and snapshot.link is FeedLink.JOINING:
        text += Content.styled("waiting for the first answer", "$text-muted")
    return text


def place_text(
    crumbs: Sequence[str], marks: Sequence[str], keys: Sequence[KeyHint], width: int
) -> Content:
    """Where one is, what is left out, and at the right the keys of this page."""
    left = Content("")
    for at, crumb in enumerate(crumbs):
        if at:
            left += Content.styled(" > ", "$text-muted")
        is_last = at == len(crumbs) - 1
        left += clickable(
            one_line(crumb), f"app.up_to({at})", "bold $foreground" if is_last else ""
        )
    for mark in marks:
        left += Content.styled(f"   {one_line(mark)}", "bold $text-accent")
    room = width - left.cell_length - 3
    if room <= 0:
        return left
    shown = list(keys[: fit([(key.short, key.word) for key in keys], room)])
    right = Content("  ").join(key_text(key.short, key.word, key.action) for key in shown)
    return left + Content(" " * (room + 3 - right.cell_length)) + right


def foot_text(
    views: Sequence[tuple[str, str]], shown: str, keys: Sequence[KeyHint], width: int
) -> Content:
    """The views, with their keys marked, and the keys that are good everywhere."""
    long = sum(len(_tab_text(key, title)) + 1 for key, title in views) - 1
    needed = sum(len(key.short) + 1 + len(key.word) + 1 for key in keys[:1])
    is_short = long + needed > width
    tabs = []
    for key, title in views:
        style = "bold reverse" if title == shown else ""
        action = f"app.look('{title}')"
        if is_short and title != shown:
            tabs.append(clickable(key, action, "bold $text-accent"))
        elif title.startswith(key):
            mark = style or "bold underline $text-accent"
            tab = clickable(key, action, mark) + clickable(title[len(key) :], action, style)
            tabs.append(tab)
        else:
            tabs.append(clickable(_tab_text(key, title), action, style))
    text = Content(" ").join(tabs)
    room = width - text.cell_length - 1
    count = fit([(key.short, key.word) for key in keys], room)
    right = Content("  ").join(key_text(k.short, k.word, k.action) for k in keys[:count])
    return text + Content(" " * max(room + 1 - right.cell_length, 0)) + right


def _tab_text(key: str, title: str) -> str:
    return title if title.startswith(key) else f"{key} {title}"


def key_text(key: str, word: str, action: str) -> Content:
    """'enter open', to be clicked."""
    name = f"app.{action}" if "." not in action else action
    return clickable(key, name, "bold $text-accent") + clickable(f" {word}", name, "")


def clickable(text: str, action: str, style: str) -> Content:
    """Text that does something when it is clicked."""
    content = Content.styled(text, Style.from_meta({"@click": action}))
    return content.stylize(style) if style else content


def headline(snapshot: Snapshot, parts: RankRoles, now: float) -> tuple[str, Tone]:
    """The words, and how bad it is; '' while nothing is wrong."""
    if not snapshot.lines:
        return "", Tone.PLAIN
    root = root_of(snapshot.verdict)
    text = _waiting(snapshot, parts, root, now) if root is not None else ""
    tone = _TONES[root.severity] if root is not None else Tone.FAULT
    return text or one_line(snapshot.lines[0]), tone


def _waiting(snapshot: Snapshot, parts: RankRoles, root: Finding, now: float) -> str:
    """'rank 2 is asleep at slp.py:6 (load); ranks 0-1,3 have waited 12 s for it'; '' if no row says so."""
    causes = [row for rank in sorted(parts.causes) if (row := snapshot.ranks.get(rank)) is not None]
    waiting = [
        row for rank in sorted(parts.victims) if (row := snapshot.ranks.get(rank)) is not None
    ]
    if root.kind not in _WAITED_FOR or len(causes) != 1 or not waiting:
        return ""
    cause = causes[0]
    if cause.state.is_over or any(row.state is not RankState.WAITING for row in waiting):
        return ""
    since = age(now - min(row.state_at for row in waiting))
    verb = "has" if len(waiting) == 1 else "have"
    # The cause first: on a narrow screen the rest is cut.
    text = (
        f"rank {cause.rank} is {_doing(cause)}; "
        f"{ranks_text([row.rank for row in waiting])} {verb} waited {since} for it"
    )
    return text + (f" in {one_line(waiting[0].op)}" if waiting[0].op else "")


def _doing(row: RankRow) -> str:
    """'asleep at slp.py:6 (load)'."""
    where = f" at {one_line(row.site)}" if row.site else ""
    return f"{row.state}{where}"
