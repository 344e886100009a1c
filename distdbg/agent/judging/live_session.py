"""Builds the session of a running job from the accounts of its hosts. Pure.

It holds what is in flight, how far each rank has come on its groups, how ranks ended, and what the agents
see of those that do not move. Rank r has issued seq s on group g when its progress there says so; what ended
before is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from distdbg.agent.judging.account import Account, Row, ranks_of
from distdbg.diagnose.ops import NEVER, NONE
from distdbg.diagnose.session import (
    Activity,
    GroupInfo,
    GroupProgress,
    RankLog,
    RecordedProblem,
    Session,
    WorkWait,
)
from distdbg.record.ends import RankEnd
from distdbg.record.format import Exit
from distdbg.record.forms import Form, read_form
from distdbg.record.join_calls import JoinCall
from distdbg.record.rank_state import RankState
from distdbg.record.rank_words import read_exit_text
from distdbg.record.recorded_frame import RecordedFrame

_MAX_FOUND: Final = 64
_MAX_NS: Final = 1 << 62
_CELLS: Final = 13
_MAX_WORLD: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class ReceivedAccount:
    """An account, and when it was made on the clock of whoever reads it."""

    account: Account
    made_ns: int


@dataclass(slots=True)
class LiveFacts:
    """What a session of the living has besides the accounts."""

    run: str = ""
    source: str = ""
    attempt: int = 0
    now_ns: int = 0
    """Monotonic, of this host."""
    wall_ns: int = 0
    """At the same moment."""
    found: Sequence[Mapping[str, Any]] = ()
    """Findings of the ranks of this host, as `error_times.ErrorTimes` gives them."""
    last_good: Mapping[int, int] = field(default_factory=dict)
    """By those ranks, when the last op was issued that went well."""
    lacks: list[str] = field(default_factory=list)


def make_session(heard: Sequence[ReceivedAccount], facts: LiveFacts) -> Session:
    """The session of these accounts. One that cannot be read is left out, and `lacks` says so."""
    to_wall_ns = facts.wall_ns - facts.now_ns
    session = Session(
        source=facts.source,
        format="distdbg",
        run=facts.run,
        attempt=facts.attempt,
        attempts=facts.attempt + 1,
        world_size=max((_world_size(one.account) for one in heard), default=0),
        is_live=True,
        now_ns=facts.wall_ns,
        lacks=list(facts.lacks),
    )
    building = _Building(session)
    for one in heard:
        try:
            building.add(one.account, one.made_ns + to_wall_ns)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            host = str(one.account.get("host", "?"))[:80]
            session.lacks.append(f"the account of host {host} cannot be read: {error}")
    for one in heard:
        _add_found(session, _found_in(one.account))
    _add_found(session, facts.found)
    for rank in facts.last_good.keys() & session.ranks.keys():
        session.ranks[rank].last_good_ns = facts.last_good[rank]
    return session


class _Building:
    """The tables of a session while accounts are put into it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._groups: dict[str, int] = {}
        self._stacks: dict[tuple[RecordedFrame, ...], int] = {(): 0}
        self._forms: dict[str, int] = {"": 0}

    def add(self, account: Account, made_wall_ns: int) -> None:
        offset_ns = made_wall_ns - int(account["now"])
        groups = [self._group(words) for words in account["groups"]]
        stacks = [self._stack(frames) for frames in account["stacks"]]
        forms = [self._form(text) for text in account["forms"]]
        logs = []
        for row in map(_without_cut, account["ranks"]):
            log = _read_row(row, str(account["host"]), offset_ns, groups)
            for cells in row.get("ops", ()):
                _add_op(log, cells, groups, stacks, forms)
            log.work_waits = tuple(
                WorkWait(
                    thread=thread,
                    number=number,
                    since_ns=since,
                    stack=stacks[stack],
                    is_limited=is_limited,
                )
                for thread, number, since, stack, is_limited in row.get("waits", ())
            )
            logs.append(log)
        self._session.ranks.update((log.rank, log) for log in logs)  # whole accounts only

    def _group(self, words: Sequence[str]) -> int:
        name, label, ranks, backend = words
        if name not in self._groups:
            self._groups[name] = len(self._session.groups)
            self._session.groups.append(
                GroupInfo(name=name, label=label, ranks=ranks_of(ranks), backend=backend)
            )
        return self._groups[name]

    def _stack(self, frames: Sequence[Sequence[Any]]) -> int:
        stack = tuple(RecordedFrame(str(file), int(line), str(name)) for file, line, name in frames)
        if stack not in self._stacks:
            self._stacks[stack] = len(self._session.stacks)
            self._session.stacks.append(stack)
        return self._stacks[stack]

    def _form(self, text: str) -> int:
        if text not in self._forms:
            form = read_form(text.encode()) if text else Form()
            self._forms[text] = len(self._session.forms)
            self._session.forms.append(form)
        return self._forms[text]


def _without_cut(row: Row) -> Row:
    """Leave out the ops of a row that does not have all in flight: nothing is to be proven of them."""
    if not row.get("cut"):
        return row
    state = row["state"]
    if state == RankState.WAITING:
        state = str(RankState.RUNNING)
    return {**row, "state": state, "ops": (), "waits": ()}


def _read_row(row: Row, host: str, offset_ns: int, groups: Sequence[int]) -> RankLog:
    log = RankLog(
        rank=int(row["rank"]),
        host=host,
        pid=int(row["pid"]),
        offset_ns=offset_ns,
        heartbeat_ns=int(row["moved"]),
        level=int(row.get("level", 0)),
    )
    judged = RankState(row["state"])
    state = RankState(row.get("seen", judged))
    log.longest_gap_ns = int(row.get("gap", 0))
    log.activity = Activity(
        state=state,
        is_patient=state is judged if state.is_stuck else None,
        since_ns=int(row["since"]),
        why=str(row.get("why", "")),
        site=str(row.get("site", "")),
    )
    if "was" in row:
        was, since, why, site = row["was"]
        log.activities = (
            Activity(state=RankState(was), since_ns=int(since), why=str(why), site=str(site)),
        )
    for place, issued, ended, *more in row.get("progress", ()):
        closed_ns, broken, *closed_at = more or (None, None)
        log.progress[groups[place]] = GroupProgress(
            issued_seq=issued,
            ended_seq=ended,
            closed_ns=closed_ns,
            closed_at=str(closed_at[0]) if closed_at else "",
            broken=broken,
        )
    if "threads" in row:
        log.threads = frozenset(row["threads"])
    log.issuers = frozenset(row.get("issuers", ()))
    if "asides" in row:
        log.last_asides = {(groups[place], kind): seq for place, kind, seq in row["asides"]}
    _read_joining(row, log)
    if "end" in row:
        log.end = RankEnd.from_json(json.dumps(row["end"]))
    if "exit" in row:
        how, words = row["exit"]
        log.exit = Exit[how.upper()]
        log.exit_ns = log.heartbeat_ns
        log.exit_what, log.exit_where, log.exit_hint, log.exit_handled = read_exit_text(words)
    return log


def _read_joining(row: Row, log: RankLog) -> None:
    """Read the row of a rank without a record, as `account` writes it."""
    if "join" in row:
        log.join = JoinCall.from_json(json.dumps(row["join"]))
    if "starts" in row and log.activity is not None:
        log.activity = replace(log.activity, state=RankState(row["starts"]), is_patient=None)


def _world_size(account: Account) -> int:
    size = account.get("world")
    return size if type(size) is int and 0 <= size < _MAX_WORLD else 0


def _add_op(
    log: RankLog,
    cells: Sequence[int],
    groups: Sequence[int],
    stacks: Sequence[int],
    forms: Sequence[int],
) -> None:
    if len(cells) != _CELLS:
        raise ValueError(f"an op of {len(cells)} cells")
    number, issued, started, seq, group, kind, flags, peer, tag, form, stack, thread, prints = cells
    log.ops.append(
        number=number,
        issued_ns=issued,
        started_ns=started or NEVER,
        seq=seq,
        group=NONE if group < 0 else groups[group],
        kind=kind,
        flags=flags,
        peer=peer,
        tag=tag,
        form=forms[form],
        stack=stacks[stack],
        thread=thread,
        fingerprint=prints,
    )


def _found_in(account: Account) -> list[Mapping[str, Any]]:
    """What the ranks of another host have found; it may say anything, but of its own ranks alone."""
    found, rows = account.get("found"), account.get("ranks")
    if not isinstance(found, list) or not isinstance(rows, list):
        return []
    own = {row.get("rank") for row in rows if isinstance(row, dict)}
    return [one for one in found if isinstance(one, dict) and one.get("rank") in own]


def _add_found(session: Session, found: Sequence[Mapping[str, Any]]) -> None:
    for facts in found[-_MAX_FOUND:]:
        log = session.ranks.get(facts.get("rank", -1))
        if log is None:
            continue
        seq, at_ns = facts.get("seq"), facts.get("at_ns")
        ranks = facts.get("ranks")
        details = facts.get("details")
        one = RecordedProblem(
            type=str(facts.get("type") or ""),
            what=str(facts.get("what") or ""),
            at_ns=at_ns if type(at_ns) is int and 0 <= at_ns < _MAX_NS else NEVER,
            group=str(facts.get("group") or ""),
            seq=seq if type(seq) is int else 0,
            kind=str(facts.get("kind") or ""),
            ranks=tuple(r for r in ranks if type(r) is int) if isinstance(ranks, list) else (),
            how=str(facts.get("how") or ""),
            details=tuple(map(str, details)) if isinstance(details, list) else (),
            hint=str(facts.get("hint") or ""),
        )
        log.found = (*log.found, one)
