"""The events of a diagnosis as JSON, and the same diagnosis once more of nothing but them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from distdbg.agent.judging import diagnosis_events
from distdbg.agent.judging.decide import step
from distdbg.agent.judging.diagnosis_events import (
    AccountAsked,
    AccountReceived,
    ClockHold,
    ClockSeen,
    Event,
    JobFinished,
    JobSeen,
    RanksEnded,
    RecordsRead,
    SeenEnd,
    VerdictMade,
)
from distdbg.agent.judging.diagnosis_state import DiagnosisState
from distdbg.agent.judging.instructions import (
    AbortJob,
    Instruction,
    Judge,
    PrintLines,
    WriteVerdict,
)
from distdbg.agent.judging.judge import judge_job
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.hosts.accounts import AccountRequest, HostAccountState
from distdbg.record.rank_state import RankState

Plain = dict[str, Any]


def write_events(events: Iterable[Event]) -> str:
    """One line for each. Of a verdict it has only when it came: what it was is judged anew."""
    return "".join(json.dumps(_to_plain(event)) + "\n" for event in events)


def read_events(text: str) -> list[Event]:
    """Those of `write_events`; verdicts are still to be judged."""
    return [_from_plain(json.loads(line)) for line in text.splitlines()]


@dataclass
class Replayed:
    """What a diagnosis came to."""

    verdicts: list[Plain] = field(default_factory=list)
    written: list[Plain] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    aborted: list[Plain] = field(default_factory=list)
    state: DiagnosisState = field(default_factory=DiagnosisState)

    def take(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """What one step has led to."""
        if isinstance(event, VerdictMade):
            self.verdicts.append(event.judged.plain)
        for one in instructions:
            match one:
                case WriteVerdict(judged=judged):
                    self.written.append(judged.plain)
                case PrintLines(lines=lines):
                    self.said += lines
                case AbortJob(judged=judged):
                    self.aborted.append(judged.plain)


def replay(
    events: Iterable[Event], abort_on: frozenset[str], *, run: str, source: str, attempt: int = 0
) -> Replayed:
    """Diagnose again, by these events alone."""
    found = Replayed(state=DiagnosisState(abort_on=abort_on))
    asked: list[Judge] = []
    for event in events:
        if isinstance(event, VerdictMade):
            wanted = asked.pop()
            judged = judge_job(wanted.own, wanted.others, run=run, source=source, attempt=attempt)
            event = replace(event, judged=judged)
        found.state, instructions = step(found.state, event)
        asked += [one for one in instructions if isinstance(one, Judge)]
        found.take(event, instructions)
    return found


def _to_plain(event: Event) -> Plain:
    return {"event": type(event).__name__} | {
        one.name: _plain_value(getattr(event, one.name))
        for one in fields(event)
        if not isinstance(getattr(event, one.name), JudgedVerdict)
    }


def _plain_value(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain_value(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping) and any(isinstance(key, int) for key in value):
        return [[key, _plain_value(one)] for key, one in value.items()]
    return value


def _from_plain(words: Plain) -> Event:
    kind: Any = getattr(diagnosis_events, words.pop("event"))
    if kind is RecordsRead:
        return _records(words)
    if kind is AccountReceived:
        return AccountReceived(reported=HostAccountState(*words["reported"]))
    if kind is RanksEnded:
        return RanksEnded(ends=tuple(SeenEnd(*end) for end in words["ends"]))
    if kind is ClockSeen:
        return ClockSeen(hold=ClockHold(words["hold"]))
    if kind is AccountAsked:
        asked = words["request"]
        return AccountAsked(request=AccountRequest(asked["number"], tuple(asked["ranks"])))
    if kind is JobFinished:
        return JobFinished(last=_records(words["last"]), states=_states(words["states"]))
    if kind is JobSeen:
        return JobSeen(**words | {"states": _states(words["states"])})
    if kind is VerdictMade:
        return VerdictMade(**words, judged=None)  # type: ignore[arg-type]  # `replay` judges
    if "last_good" in words:
        words["last_good"] = dict(words["last_good"])
    event: Event = kind(**{name: _tuples(value, name) for name, value in words.items()})
    return event


def _tuples(value: Any, name: str) -> Any:
    return tuple(value) if name == "elsewhere" else value


def _records(words: Plain) -> RecordsRead:
    triggers = ("rank_triggers", "prompts")
    return RecordsRead(**words | {name: tuple(map(tuple, words[name])) for name in triggers})


def _states(pairs: Sequence[tuple[int, str]]) -> dict[int, RankState]:
    return {rank: RankState(state) for rank, state in pairs}
