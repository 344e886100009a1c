"""The one report of a launcher whose job failed: what kind of failure, the root cause first. Pure.

RANK DIED: rank 2 was killed by SIGSEGV (host n14, pid 8812)
  3 other ranks were terminated because of it
  at its end: in all_reduce #12 on group 'dp' for 0.1 s, train.py:80 (step)
  ...
  hint: ...
  run folder: /tmp/distdbg-1000/20261121-130501-1f09ac
  next: distdbg analyze 20261121-130501-1f09ac
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.control.words import AGENT, AbortWords
from distdbg.diagnose import headline
from distdbg.errors import format_ranks
from distdbg.launch.cause import Cause, make_cause, say_attempts
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import Evidence
from distdbg.launch.hints import hint_of
from distdbg.launch.last_frames import last_frames, last_line
from distdbg.launch.report_end import end_facts
from distdbg.launch.report_layout import lay_out
from distdbg.launch.root_cause import Part, RootCause, find_root_cause
from distdbg.record.ends import signal_name
from distdbg.record.entries import Frame
from distdbg.record.format import Exit
from distdbg.record.printable import printable

#: What does not fit into the first line of a terminal goes below.
_FIRST_LINE: Final = 80
_MOST_REASON: Final = 240
_MOST_DETAILS: Final = 8
_MOST_FRAMES: Final = 3
#: The `AbortWords.type` of a rank that is gone.
_DEAD_RANK: Final = "dead rank"
#: Errors that only say what another rank did.
_KNOWN: Final = frozenset(("PeerLost", "RankLeft", "JobAborted", "DebuggerQuit", "OpTimeout"))
#: What no signal makes: it failed before one came.
_PROVEN: Final = frozenset((headline.MISMATCH, headline.OUT_OF_MEMORY))
#: What the end of the job makes of no interest.
_UNUSABLE: Final = ("the group is unusable", "no data was exchanged")
#: Clocks of different hosts are not trusted to be closer.
_SKEW_NS: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a launcher knows when its job is over."""

    evidence: Sequence[Evidence] = ()
    """Of the last start of the ranks, from all hosts where they are known."""
    run_folder: str = ""
    attempt: int = 0
    max_restarts: int = 0
    before: Sequence[Cause] = ()
    """Of the attempts that failed before this one."""
    interrupted: int | None = None
    stopped_by: str = ""
    """The user who asked for that by `distdbg stop`."""
    """The signal that ended the launcher."""
    doing: Sequence[str] = ()
    """What the ranks did when it came."""
    because: str = ""
    """Why the launcher terminated its ranks though none of them had failed first: 'host n04 is gone'."""
    is_elsewhere: bool = False
    """Whether that was on another host, whose launcher ends with `code`."""
    code: int = 1
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Of the ranks that ran elsewhere."""
    verdict: AbortWords | None = None
    """For which the agents have ended the job."""
    seen: Mapping[int, str] = field(default_factory=dict)
    """Where ranks were, as the agent of this host saw them last: 'asleep in load() at slp.py:7'."""
    hang: str = ""
    """What a job hung in when a signal ended it: 'ranks 0-1 waited 99 s for rank 2, asleep ...'."""
    waited: str = ""
    """The same of waits that were too short for that: 'ranks 0-1 had waited 2.1 s in ...'."""
    diagnosis: Diagnosis | None = None
    """What the records show of a deadlock, or of ranks that left while others waited for them."""
    memory_limit: str = ""
    """Of the ranks of this host: '2.0 GiB (cgroup)'."""
    losses: str = ""
    """Which files could not be written: 'not written since 13:05:01: ...'."""
    analyze: str = ""
    """What `distdbg analyze` is to be called with: the run's name, or its folder."""


def exit_code(outcome: Outcome) -> int:
    """The first failing rank's, as a shell says it: 128 + n for a signal; 0: nothing failed."""
    if outcome.interrupted is not None:
        return 128 + outcome.interrupted
    found = find_root_cause(outcome.evidence)
    if found is None or found.part is Part.ENDED or _was_elsewhere(outcome, found):
        return outcome.code if outcome.because or found is not None else 0
    for one in (*found.first, *found.others, *found.victims, *found.ended):
        if one.end.shell_code:
            return one.end.shell_code
    return 1


def report(outcome: Outcome, *, width: int | None = None, is_coloured: bool = False) -> str:
    """The lines for stderr, each with its end; '' when nothing failed.

    `width` and colour are those of a terminal; None: a file, where no line is broken.
    """
    found = find_root_cause(outcome.evidence)
    word = _word(outcome, found)
    lines, hint = _lines(outcome, found, word)
    if not lines:
        return ""
    if outcome.interrupted is not None and _had_failed(outcome, found):
        lines += [*_interrupted(outcome, outcome.interrupted)]
    lines += [*_restarts(outcome, found, make_cause(word, lines, hint, outcome.attempt + 1))]
    if outcome.losses:
        lines.append(outcome.losses)
    if hint:
        lines.append(f"hint: {hint}")
    if outcome.run_folder:
        lines.append(f"run folder: {outcome.run_folder}")
    if outcome.analyze:
        lines.append(f"next: distdbg analyze {outcome.analyze}")
    return lay_out(word, [printable(line) for line in lines], width=width, is_coloured=is_coloured)


def cause_of(outcome: Outcome) -> Cause | None:
    """The same in short, of an attempt after which there is another one; None: nothing failed."""
    found = find_root_cause(outcome.evidence)
    word = _word(outcome, found)
    lines, hint = _lines(outcome, found, word)
    return make_cause(word, lines, hint, outcome.attempt + 1) if lines else None


def _lines(outcome: Outcome, found: RootCause | None, word: str) -> tuple[list[str], str]:
    """What failed, the root cause first, and the hint; nothing where nothing has."""
    hint = ""
    if outcome.interrupted is not None and not _had_failed(outcome, found):
        lines = [*_interrupted(outcome, outcome.interrupted), *_meanwhile(found)]
        if outcome.waited:
            lines.append(f"when it was ended {outcome.waited}")
        elif not outcome.hang:
            lines += outcome.doing
    elif _has_verdict(outcome, found):
        assert outcome.verdict is not None
        better = _better(outcome)
        lines = [*_by_verdict(outcome, word)]
        hint = (better.advice if better is not None else "") or outcome.verdict.hint
    elif found is None or found.part is Part.ENDED or _was_elsewhere(outcome, found):
        if found is None and not outcome.because:
            return [], ""
        lines = [*_ended(outcome, found)]
        if found is not None and not _was_elsewhere(outcome, found):
            hint = hint_of(found)
    elif outcome.diagnosis is not None and found.part is Part.LEAVER:
        lines = [*_diagnosed(found, outcome.diagnosis)]
        hint = outcome.diagnosis.advice or hint_of(found)
    else:
        lines, hint = [*_failed(found, outcome, word)], hint_of(found)
    return lines, hint


def _had_failed(outcome: Outcome, found: RootCause | None) -> bool:
    """Whether the job had failed for good when a signal ended the launcher: the signal came too late."""
    if found is None or _has_verdict(outcome, found):
        return found is not None
    return found.part is Part.CAUSE and _word_of_end(found.first[0]) in _PROVEN


def _word_of_end(one: Evidence) -> str:
    return headline.of_end(cause=one.end.cause, signal=one.end.signal, error_type=one.error_type)


def _word(outcome: Outcome, found: RootCause | None) -> str:
    if outcome.interrupted is not None and not _had_failed(outcome, found):
        return headline.HUNG if outcome.hang else headline.STOPPED
    if _has_verdict(outcome, found):
        assert outcome.verdict is not None
        return headline.of_kind(outcome.verdict.type, outcome.verdict.what)
    if found is None or found.part is Part.ENDED or _was_elsewhere(outcome, found):
        return headline.FAILED
    if found.part is Part.LEAVER:
        diagnosis = outcome.diagnosis
        return (
            headline.MISMATCH
            if diagnosis is None
            else headline.of_kind(diagnosis.kind, diagnosis.what)
        )
    first = found.first[0]
    was_aborted = first.error_type == "JobAborted" and "aborted by" in first.reason
    if was_aborted and AGENT not in first.reason:
        return headline.STOPPED  # by a person, whose words follow
    return _word_of_end(first)


# ------------------------------------------------------------------------------- the agents' verdict


def _has_verdict(outcome: Outcome, found: RootCause | None) -> bool:
    """Whether it says more than how processes ended: of a rank that died they say enough."""
    verdict = outcome.verdict
    if verdict is None or found is None:
        return False
    return verdict.type != _DEAD_RANK or found.part is not Part.CAUSE


def _by_verdict(outcome: Outcome, word: str) -> Iterator[str]:
    verdict = outcome.verdict
    assert verdict is not None
    failed = [one for one in outcome.evidence if one.end.is_failure and not one.end.was_asked]
    ended = sum(one.end.was_asked for one in outcome.evidence)
    here = " of this host" if outcome.is_elsewhere else ""
    many = f"the job was aborted: {_count(len(failed))}{here} ended with an error because of it"
    if ended:
        many += f", {ended} {_were(ended)} terminated"
    better = _better(outcome)
    yield verdict.what if better is None else better.what
    details = verdict.details if better is None else better.evidence
    yield from details[:_MOST_DETAILS]
    for rank in list(verdict.ranks)[:_MOST_DETAILS]:
        if rank in outcome.seen and word == headline.HUNG:
            yield f"rank {rank} was {outcome.seen[rank]}"
    yield many
    own = [one for one in failed if not one.because_of and one.rank not in verdict.ranks]
    yield from _fold("failed as well", own)


def _better(outcome: Outcome) -> Diagnosis | None:
    """What the records show of that verdict: an agent has proven it before anybody could read them all."""
    verdict, diagnosis = outcome.verdict, outcome.diagnosis
    is_same = verdict is not None and diagnosis is not None and diagnosis.kind == verdict.type
    return diagnosis if is_same else None


def _diagnosed(found: RootCause, diagnosis: Diagnosis) -> Iterator[str]:
    """Who left is known; what the records show comes first: it may be another rank's mistake."""
    yield diagnosis.what
    yield from diagnosis.evidence[:_MOST_DETAILS]
    aftermath = _aftermath(found)
    if aftermath:
        yield aftermath
    yield from _fold("failed as well", found.others)
    yield from _fold("failed because of it", found.victims, is_brief=True)


# ------------------------------------------------------------------------------------ first lines


def _interrupted(outcome: Outcome, number: int) -> Iterator[str]:
    name = "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal_name(number)
    how = (
        f"stopped by {outcome.stopped_by} (distdbg stop)"
        if outcome.stopped_by
        else f"interrupted by {name}"
    )
    count = sum(one.end.was_asked for one in outcome.evidence)
    ended = f"; {_count(count)} {_were(count)} terminated" if count else ""
    if outcome.hang:
        yield outcome.hang
    yield f"{how}{ended}"


def _was_elsewhere(outcome: Outcome, found: RootCause) -> bool:
    """Whether the ranks of this host failed because of what happened on another one."""
    return bool(outcome.because) and found.is_elsewhere


def _ended(outcome: Outcome, found: RootCause | None) -> Iterator[str]:
    why = outcome.because or "the launcher terminated its ranks"
    here = " of this host" if outcome.is_elsewhere else ""
    failed = () if found is None or found.part is Part.ENDED else (*found.first, *found.victims)
    ended = sum(one.end.was_asked for one in outcome.evidence)
    many = []
    if failed:
        many.append(f"{_count(len(failed))}{here} failed because of it")
    if ended:
        many.append(f"{_count(ended)}{here} {_were(ended)} terminated")
    yield "; ".join([why, " and ".join(many)]) if many else why
    yield from _fold("failed because of it", failed, is_brief=True)


def _failed(found: RootCause, outcome: Outcome, word: str) -> Iterator[str]:
    first = found.first[0]
    what = f"{_who(found.first)} {_how(found)}"
    if word == headline.MISMATCH and first.error_type == "MismatchError":
        what = _cut(first.reason.partition(": ")[2])  # which ranks differ stands in it
    place = f"host {first.end.host}, pid {first.end.pid}" if len(found.first) == 1 else ""
    late = [rank for rank in sorted(found.blamed) if rank in outcome.seen]
    if found.part is Part.SUSPECT and late:
        # Who is waited for comes before those that gave up.
        for rank in late[:_MOST_DETAILS]:
            yield f"rank {rank} was {outcome.seen[rank]}"
        yield what
        what = ""
    used = len(word) + 2 + len(what)
    if what and place and used + len(place) + 3 <= _FIRST_LINE:
        what, place = f"{what} ({place})", ""
    if what:
        yield what
    if place:
        yield place
    aftermath = _aftermath(found)
    if aftermath:
        yield aftermath
    yield from end_facts(first, outcome.memory_limit)
    yield from _details(found, outcome.hosts)


def _how(found: RootCause) -> str:
    return _cut(found.how)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_REASON else text[:_MOST_REASON] + "..."


def _aftermath(found: RootCause) -> str:
    """Who was terminated; those that failed have lines of their own below."""
    count = len(found.ended)
    return f"{_count(count, 'other ')} {_were(count)} terminated because of it" if count else ""


# ---------------------------------------------------------------------------------------- details


def _details(found: RootCause, hosts: Mapping[int, str]) -> Iterator[str]:
    first = found.first[0]
    error = first.error
    if error is not None:
        # Of our own errors the details say it; of others the rest of a text of several lines.
        said_later = f"hint: {error.hint}"
        below = [line for line in error.text.splitlines()[1:] if line.strip() != said_later]
        yield from (_shared_details(found.first) or below)[:_MOST_DETAILS]
        if not error.details:
            frames = last_frames(error.traceback)
            # What was on the console already stands here as one line.
            yield from frames if first.stderr_file else last_line(frames)
    elif first.crash:
        yield f"crashed at {', called from '.join(map(_site, first.crash[:_MOST_FRAMES]))}"
        if first.record is not None and first.record.doing:
            yield first.record.doing.replace(" ago, ", " before, ", 1)
    elif first.record is not None and first.record.doing and first.record.how is not Exit.RETURNED:
        doing = first.record.doing
        yield doing if first.reason else f"at its end: {doing.replace(' ago, ', ' before, ', 1)}"
    if error is None and first.stderr_tail:
        yield "the end of its stderr:"
        yield from (f"  {line}" for line in first.stderr_tail)
    yield from _of_blamed(found, hosts)
    if first.error_file:
        yield f"error file: {first.error_file}"
    if first.stderr_file:
        yield f"stderr: {first.stderr_file}"
    yield from _fold("failed as well", found.others)
    yield from _fold("failed because of it", found.victims, is_brief=True)
    yield from _of_victims(found)
    yield from _clocks(found)


def _site(frame: Frame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line} ({frame.function})"


def _shared_details(evidence: Sequence[Evidence]) -> list[str]:
    """What all of them say below their first line: not 'this rank is the odd one'."""
    all_details = [one.error.details for one in evidence if one.error is not None]
    return [
        line
        for line in all_details[0]
        if all(line in details for details in all_details) and not line.startswith(_UNUSABLE)
    ]


def _of_victims(found: RootCause) -> Iterator[str]:
    """For a rank that left and has no word for it: what the first of its victims says."""
    victim = next((one.error for one in found.victims if one.error is not None), None)
    if found.part is Part.LEAVER and victim is not None:
        details = [line for line in victim.details if not line.startswith(_UNUSABLE)]
        yield from details[:_MOST_DETAILS]


def _of_blamed(found: RootCause, hosts: Mapping[int, str]) -> Iterator[str]:
    """What is known of the ranks that the first ones name."""
    known = {e.rank: e for e in (*found.victims, *found.ended, *found.others)}
    for rank in sorted(found.blamed)[:_MOST_DETAILS]:
        one = known.get(rank)
        if one is None:
            where = hosts.get(rank)
            yield (
                f"rank {rank} was on host {where}; see the output of the launcher there"
                if where
                else f"rank {rank}: how it ended is not known here; it may be on another host"
            )
        elif one.record is not None and one.record.doing:
            end = "terminated by the launcher" if one.end.was_asked else f"it {one.how}"
            if not _has_last_op(found, rank):
                yield f"rank {rank}: {one.record.doing}; {end}"
            elif not one.end.was_asked:
                yield f"rank {rank}: {end}"


def _has_last_op(found: RootCause, rank: int) -> bool:
    """Whether the error itself has the last op of a rank that it names."""
    error = found.first[0].error
    details = () if error is None else error.details
    return any(line.startswith(f"rank {rank} ") and "last op " in line for line in details)


def _fold(title: str, evidence: Sequence[Evidence], *, is_brief: bool = False) -> Iterator[str]:
    """Failures with equal words in one line: 'ranks 0-1,3 failed because of it: PeerLost: ...'."""
    by_words: dict[str, list[Evidence]] = {}
    for one in evidence:
        # Of errors of ours the root cause says the rest.
        how = one.reason.partition(":")[0] if is_brief and one.error_type in _KNOWN else one.how
        by_words.setdefault(how, []).append(one)
    for how, several in list(by_words.items())[:_MOST_DETAILS]:
        yield f"{_who(several)} {title}: {_cut(how)}"
    hidden = list(by_words.values())[_MOST_DETAILS:]
    if hidden:
        ranks = format_ranks(one.rank for several in hidden for one in several)
        yield f"ranks {ranks} {title}, in {len(hidden)} other ways"


def _clocks(found: RootCause) -> Iterator[str]:
    """Who else may have been first, since hosts do not agree on the time."""
    first = found.first[0]
    near = [
        one
        for one in found.others
        if one.end.host != first.end.host and one.failed_wall_ns - first.failed_wall_ns < _SKEW_NS
    ]
    if near:
        yield (
            f"{_who(near)} failed on {'another host' if len(near) == 1 else 'other hosts'} "
            "within a second: clocks of hosts differ, so that may have been first"
        )


def _meanwhile(found: RootCause | None) -> Iterator[str]:
    """What had failed by itself when the launcher was interrupted."""
    if found is not None and found.part is not Part.ENDED:
        yield f"before, {_who(found.first)} {_how(found)}"


def _restarts(outcome: Outcome, found: RootCause | None, last: Cause) -> Iterator[str]:
    if outcome.max_restarts or outcome.attempt:
        yield f"restarts used: {outcome.attempt} of {outcome.max_restarts}"
    if outcome.before:
        has_failed = outcome.interrupted is None or _had_failed(outcome, found)
        yield from say_attempts([*outcome.before, *([last] if has_failed else [])])


# ------------------------------------------------------------------------------------------ words


def _who(evidence: Iterable[Evidence]) -> str:
    ranks = [one.rank for one in evidence]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _count(count: int, which: str = "") -> str:
    return f"{count} {which}rank{'' if count == 1 else 's'}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
