"""One op on all its ranks, one rank closely, where ranks were: of a session at a moment. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks, say_site
from distdbg.record.entries import Frame
from distdbg.record.format import Flag
from distdbg.record.forms import Form, Listing, Shape
from distdbg.record.rank_state import RankState
from distdbg.render.stacks import own_frames
from distdbg.render.story import status_text
from distdbg.render.words import iso_text, site_text
from distdbg.tui.replay.bars import bar_of
from distdbg.tui.replay.moments import Moments
from distdbg.tui.replay.ranks import in_op, rank_row
from distdbg.view.snapshot import Arrival, OpDetail, OpKey, RankDetail, StackGroup, Stacks

_MOST_HISTORY: Final = 200
_NO_COLLECTIVE: Final = Flag.MESSAGE | Flag.ASIDE


def op_detail(moments: Moments, key: OpKey, at_ns: int) -> OpDetail | None:
    """As it was then; one that nobody had called yet, as it was to be."""
    session = moments.session
    one = _find(moments, key)
    if one is None:
        return None
    ops = session.ranks[one.rank].ops
    flags, group = ops.flags[one.at], ops.group[one.at]
    calls: dict[int, OpRef] = {}
    members: Sequence[int] = (one.rank,)
    if not flags & _NO_COLLECTIVE:
        calls = moments.matched.of(group).at(ops.seq[one.at])
        members = sorted({*session.members(group), *calls})
    elif flags & Flag.MESSAGE:
        calls = {one.rank: one}
        other = _other_side(session, one)
        if other is not None:
            calls[other.rank] = other
        members = sorted({one.rank, *calls, *([ops.peer[one.at]] if ops.peer[one.at] >= 0 else [])})
    else:
        calls = _same_aside(session, one, session.members(group))
        members = sorted({*session.members(group), *calls})
    came = [_issued(session, op) for op in calls.values()]
    if at_ns < min(came):
        at_ns = max(session.now_ns, *came)
    return OpDetail(
        name=session.name_of(one),
        arrivals=tuple(_arrival(session, rank, calls.get(rank), at_ns) for rank in members),
        says=() if flags & _NO_COLLECTIVE else _says(session, calls, members, at_ns),
    )


def _issued(session: Session, op: OpRef) -> int:
    return session.time_ns(op.rank, session.ranks[op.rank].ops.issued_ns[op.at])


def _find(moments: Moments, key: OpKey) -> OpRef | None:
    session = moments.session
    if key.number and key.rank in session.ranks:
        numbers = session.ranks[key.rank].ops.number
        at = bisect_left(numbers, key.number)
        if at < len(numbers) and numbers[at] == key.number:
            return OpRef(key.rank, at)
    for index, group in enumerate(session.groups):
        if key.group in (group.name, group.label):
            found = moments.matched.of(index).at(key.seq)
            if found:
                return found.get(key.rank) or found[min(found)]
    return None


def _other_side(session: Session, op: OpRef) -> OpRef | None:
    """The other half of a message: the same number among those between the two."""
    mine = session.ranks[op.rank].ops
    peer = mine.source[op.at] if mine.peer[op.at] < 0 else mine.peer[op.at]
    if peer not in session.ranks or peer == op.rank:
        return None
    theirs = session.ranks[peer].ops
    wanted = mine.group[op.at], mine.seq[op.at]
    for at in range(len(theirs) - 1, -1, -1):
        if (
            theirs.flags[at] & Flag.MESSAGE
            and theirs.kind[at] != mine.kind[op.at]
            and (theirs.group[at], theirs.seq[at]) == wanted
            and op.rank in (theirs.peer[at], theirs.source[at])
        ):
            return OpRef(peer, at)
    return None


def _same_aside(session: Session, op: OpRef, members: Sequence[int]) -> dict[int, OpRef]:
    mine = session.ranks[op.rank].ops
    wanted = mine.kind[op.at], mine.group[op.at], mine.seq[op.at]
    found = {op.rank: op}
    for rank in members:
        log = session.ranks.get(rank)
        if log is None or rank == op.rank:
            continue
        ops = log.ops
        for at in range(len(ops) - 1, -1, -1):
            if ops.flags[at] & Flag.ASIDE and (ops.kind[at], ops.group[at], ops.seq[at]) == wanted:
                found[rank] = OpRef(rank, at)
                break
    return found


def _arrival(session: Session, rank: int, op: OpRef | None, at_ns: int) -> Arrival:
    if op is None or _issued(session, op) > at_ns:
        return Arrival(rank=rank, has_come=False)
    ops = session.ranks[rank].ops
    ended = session.time_ns(rank, ops.ended_ns[op.at])
    started = session.time_ns(rank, ops.started_ns[op.at])
    is_open = ended == NEVER or ended > at_ns
    site = session.site_of(op)
    return Arrival(
        rank=rank,
        has_come=True,
        issued=_issued(session, op) / 1e9,
        started=None if started == NEVER or started > at_ns else started / 1e9,
        ended=None if is_open else ended / 1e9,
        status=status_text(IN_FLIGHT if is_open else ops.status[op.at]),
        form=form_text(session.forms[ops.form[op.at]]),
        site=say_site(site),
        stack=tuple(map(str, session.stacks[ops.stack[op.at]])),
        error="" if is_open else _error(ops.errors.get(op.at, "")),
    )


def _error(text: str) -> str:
    """What an error says; it may be JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not isinstance(found, dict):
        return text
    words = f"{found.get('type', '')}: {found.get('what', '')}".strip(": ")
    return words or text


def _says(
    session: Session, calls: dict[int, OpRef], members: Sequence[int], at_ns: int
) -> tuple[str, ...]:
    """What differs, and who is not there."""
    there = {rank: op for rank, op in calls.items() if _issued(session, op) <= at_ns}
    says = []
    absent = [rank for rank in members if rank not in there]
    if absent and there:
        verb = "has" if len(absent) == 1 else "have"
        says.append(f"{say_ranks(absent)} {verb} not called it")
    usual: dict[tuple[int, int, int], list[int]] = {}
    for rank, op in there.items():
        ops = session.ranks[rank].ops
        key = ops.kind[op.at], ops.form[op.at], ops.fingerprint[op.at]
        usual.setdefault(key, []).append(rank)
    sides = sorted(usual.values(), key=lambda ranks: (-len(ranks), ranks))
    compare = Comparer(session)
    for ranks in sides[1:8]:
        aspects = compare.differing(there[ranks[0]], there[sides[0][0]])
        if aspects:
            calls_text = _call_text(session, there[ranks[0]])
            others = _call_text(session, there[sides[0][0]])
            says.append(
                f"{say_ranks(ranks)}: {calls_text}; {say_ranks(sides[0])}: {others} "
                f"(differs: {', '.join(aspects)})"
            )
    if len(there) > 1:
        first = min(there, key=lambda rank: _issued(session, there[rank]))
        last = max(there, key=lambda rank: _issued(session, there[rank]))
        late = (_issued(session, there[last]) - _issued(session, there[first])) / 1e9
        says.append(f"rank {first} was first, rank {last} last, {_took(late)} later")
    return tuple(says)


def _took(seconds: float) -> str:
    from distdbg.tui.cells import span

    return span(seconds)


def _call_text(session: Session, op: OpRef) -> str:
    form = form_text(session.forms[session.ranks[op.rank].ops.form[op.at]])
    return f"{session.kind_of(op)} {form}".rstrip()


def form_text(form: Form) -> str:
    """'float32[1024], sum': what an op was called with."""
    sides = [_shapes(form.inputs), _shapes(form.outputs)]
    shown = list(dict.fromkeys(side for side in sides if side))
    words = [form.dtype + " -> ".join(shown)] if shown or form.dtype else []
    if form.op:
        words.append(form.op)
    if form.root is not None:
        words.append(f"root {form.root}")
    return ", ".join(words)


def _shapes(shapes: Listing[Shape]) -> str:
    shown = [f"[{','.join(map(str, shape))}]" for shape in shapes.items[:4]]
    return "".join(shown) + ("..." if len(shapes.items) > 4 else "")


# ------------------------------------------------------------------------------- ranks, stacks


def rank_detail(moments: Moments, rank: int, at_ns: int) -> RankDetail | None:
    """Who it is, what it was in, what it had done."""
    session = moments.session
    log = session.ranks.get(rank)
    if log is None:
        return None
    mine = moments.of(rank)
    row, opened, count = rank_row(moments, rank, at_ns), mine.open(at_ns), mine.count(at_ns)
    level = ("off", "info", "detail")[log.level] if 0 <= log.level < 3 else str(log.level)
    facts = [
        ("program", " ".join(log.argv)),
        ("host", log.host),
        ("pid", str(log.pid) if log.pid else ""),
        ("record", log.source),
        ("began", iso_text(log.began_ns + log.offset_ns) if log.began_ns else ""),
        ("ops so far", f"{count:,}" if count else ""),
        ("check", level if log.source.endswith(".ddr") else ""),
        ("ended", row.why if row.state.is_over else ""),
        ("lost", ", ".join(f"{many} {what}" for what, many in log.lost.items() if many)),
    ]
    place = in_op(log, opened, at_ns - log.offset_ns)
    stack = session.stacks[log.ops.stack[place]] if place is not None else ()
    first = max(0, count - _MOST_HISTORY)
    return RankDetail(
        row=row,
        facts=tuple((name, text) for name, text in facts if text),
        in_flight=tuple(bar_of(session, rank, at) for at in opened),
        history=tuple(bar_of(session, rank, at) for at in range(count - 1, first - 1, -1)),
        stack=tuple(map(str, stack)),
    )


def stacks_at(moments: Moments, ranks: Sequence[int] | None, at_ns: int) -> Stacks:
    """Where ranks were by what they had recorded: the stack of the op they were in, or what was seen."""
    session = moments.session
    groups: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
    failed = {}
    for rank in ranks if ranks is not None else session.ranks:
        log = session.ranks.get(rank)
        if log is None:
            failed[rank] = "no data"
            continue
        opened = moments.of(rank).open(at_ns)
        place = in_op(log, opened, at_ns - log.offset_ns)
        row_at = rank_row(moments, rank, at_ns)
        seen = log.activity
        frames: tuple[Frame, ...] = ()
        if seen is not None and seen.stack and seen.state is row_at.state and place is None:
            frames = seen.stack
        elif place is not None:
            frames = session.stacks[log.ops.stack[place]]
        if frames:
            what = (
                f"in {session.kind_of(OpRef(rank, place))}"
                if place is not None
                else seen_state(row_at.state)
            )
            groups.setdefault((what, own_frames(frames)), []).append(rank)
        elif row_at.state.is_over:
            failed[rank] = row_at.why or str(row_at.state)
        else:
            failed[rank] = "outside of ops, where no stack is recorded"
    found = [
        StackGroup(
            ranks=tuple(members),
            thread=what,
            frames=tuple(
                f"{frame.function} ({site_text(frame).partition(' ')[0]})" for frame in frames
            ),
        )
        for (what, frames), members in groups.items()
    ]
    found.sort(key=lambda one: (-len(one.ranks), one.ranks))
    return Stacks(groups=tuple(found), failed=failed, how="as recorded", at=at_ns / 1e9)


def seen_state(state: RankState) -> str:
    return str(state)
