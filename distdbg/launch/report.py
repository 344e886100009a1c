"""The last words of a launcher whose job failed: the root cause first. Pure.

distdbg run: rank 2 was killed by SIGSEGV (host n14, pid 8812); 3 other ranks were ended because of it
  its record: in all_reduce #12 on group 'dp' since 0.1 s, train.py:80 (step)
  ...
  run folder: /tmp/distdbg-1000/20261121-130501-1f09ac
  hint: ...
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.control.words import AbortWords
from distdbg.errors import format_ranks
from distdbg.launch.evidence import Evidence
from distdbg.launch.last_frames import last_frames
from distdbg.launch.root_cause import Part, RootCause, find_root_cause
from distdbg.record.ends import signal_name
from distdbg.record.format import Exit
from distdbg.record.printable import printable

#: A first line that is longer says less: what does not fit goes below.
_FIRST_LINE: Final = 120
_MOST_REASON: Final = 240
_MOST_DETAILS: Final = 8
#: The `AbortWords.type` of a rank that is gone.
_DEAD_RANK: Final = "dead rank"
_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
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
    interrupted: int | None = None
    stopped_by: str = ""
    """The user who asked for that by `distdbg stop`."""
    """The signal that ended the launcher."""
    doing: Sequence[str] = ()
    """What the ranks did when it came."""
    because: str = ""
    """Why the launcher ended its ranks though none of them had failed first: 'host n04 is gone'."""
    is_elsewhere: bool = False
    """Whether that was on another host, whose launcher ends with `code`."""
    code: int = 1
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Of the ranks that ran elsewhere."""
    verdict: AbortWords | None = None
    """For which the agents have ended the job."""
    is_verdict_said: bool = False
    """Whether all of it is on this launcher's stderr already."""
    program: str = "distdbg run"


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


def report(outcome: Outcome) -> str:
    """The lines for stderr, each with its end; '' when nothing failed."""
    found = find_root_cause(outcome.evidence)
    if outcome.interrupted is not None:
        lines = [_interrupted(outcome, outcome.interrupted), *_meanwhile(found), *outcome.doing]
    elif _has_verdict(outcome, found):
        return _finish(outcome, [*_by_verdict(outcome)])
    elif found is None or found.part is Part.ENDED or _was_elsewhere(outcome, found):
        if found is None and not outcome.because:
            return ""
        lines = [*_ended(outcome, found)]
    else:
        lines = [*_failed(found, outcome)]
    lines += [*_restarts(outcome)]
    if outcome.run_folder:
        lines.append(f"run folder: {outcome.run_folder}")
    if found is not None and outcome.interrupted is None and not _was_elsewhere(outcome, found):
        hint = _hint(found)
        if hint:
            lines.append(f"hint: {hint}")
    return _finish(outcome, lines)


def _finish(outcome: Outcome, lines: Sequence[str]) -> str:
    first, *details = [printable(line) for line in lines]
    return "\n".join([f"{outcome.program}: {first}", *(f"  {line}" for line in details), ""])


# ------------------------------------------------------------------------------- the agents' verdict


def _has_verdict(outcome: Outcome, found: RootCause | None) -> bool:
    """Whether it says more than how processes ended: of a rank that died they say enough."""
    verdict = outcome.verdict
    if verdict is None or found is None:
        return False
    return verdict.type != _DEAD_RANK or found.part is not Part.CAUSE


def _by_verdict(outcome: Outcome) -> Iterator[str]:
    verdict = outcome.verdict
    assert verdict is not None
    failed = [one for one in outcome.evidence if one.end.is_failure and not one.end.was_asked]
    ended = sum(one.end.was_asked for one in outcome.evidence)
    here = " of this host" if outcome.is_elsewhere else ""
    many = f"{_count(len(failed))}{here} failed because of it"
    if ended:
        many += f" and {ended} {_were(ended)} ended"
    used = len(outcome.program) + 2 + len(verdict.what)
    if used + len(many) + 2 <= _FIRST_LINE:
        yield f"{verdict.what}; {many}"
    else:
        yield verdict.what
        yield many
    if not outcome.is_verdict_said:
        yield from verdict.details[:_MOST_DETAILS]
    own = [one for one in failed if not one.because_of and one.rank not in verdict.ranks]
    yield from _fold("failed as well", own)
    yield from _restarts(outcome)
    if outcome.run_folder:
        yield f"run folder: {outcome.run_folder}"
    if verdict.hint and not outcome.is_verdict_said:
        yield f"hint: {verdict.hint}"


# ------------------------------------------------------------------------------------ first lines


def _interrupted(outcome: Outcome, number: int) -> str:
    name = "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal_name(number)
    how = (
        f"stopped by {outcome.stopped_by} (distdbg stop)"
        if outcome.stopped_by
        else f"interrupted by {name}"
    )
    count = sum(one.end.was_asked for one in outcome.evidence)
    ended = f"; {_count(count)} {_were(count)} ended" if count else ""
    return f"{how}{ended}"


def _was_elsewhere(outcome: Outcome, found: RootCause) -> bool:
    """Whether the ranks of this host failed because of what happened on another one."""
    return bool(outcome.because) and found.is_elsewhere


def _ended(outcome: Outcome, found: RootCause | None) -> Iterator[str]:
    why = outcome.because or "the launcher ended its ranks"
    here = " of this host" if outcome.is_elsewhere else ""
    failed = () if found is None or found.part is Part.ENDED else (*found.first, *found.victims)
    ended = sum(one.end.was_asked for one in outcome.evidence)
    many = []
    if failed:
        many.append(f"{_count(len(failed))}{here} failed because of it")
    if ended:
        many.append(f"{_count(ended)}{here} {_were(ended)} ended")
    yield "; ".join([why, " and ".join(many)]) if many else why
    yield from _fold("failed because of it", failed)


def _failed(found: RootCause, outcome: Outcome) -> Iterator[str]:
    first = found.first[0]
    what = f"{_who(found.first)} {_how(found)}"
    rest = []
    place = f"host {first.end.host}, pid {first.end.pid}" if len(found.first) == 1 else ""
    aftermath = _aftermath(found)
    used = len(outcome.program) + 2 + len(what)
    if place and used + len(place) + 3 <= _FIRST_LINE:
        what += f" ({place})"
        used += len(place) + 3
    elif place:
        rest.append(place)
    if aftermath and used + len(aftermath) + 2 <= _FIRST_LINE:
        what += f"; {aftermath}"
    elif aftermath:
        rest.append(aftermath)
    yield what
    yield from rest
    yield from _details(found, outcome.hosts)


def _how(found: RootCause) -> str:
    how = found.how
    return how if len(how) <= _MOST_REASON else how[:_MOST_REASON] + "..."


def _aftermath(found: RootCause) -> str:
    many = []
    if found.others:
        many.append(f"{_count(len(found.others), 'other ')} failed as well")
    if found.victims and found.ended:
        words = f"{_count(len(found.victims), 'other ')} failed"
        many.append(f"{words} and {len(found.ended)} {_were(len(found.ended))} ended because of it")
    elif found.victims:
        many.append(f"{_count(len(found.victims), 'other ')} failed because of it")
    elif found.ended:
        count = len(found.ended)
        many.append(f"{_count(count, 'other ')} {_were(count)} ended because of it")
    return ", ".join(many)


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
            yield from last_frames(error.traceback)
    elif first.record is not None and first.record.doing and first.record.how is not Exit.RETURNED:
        yield first.record.doing if first.reason else f"at its end: {first.record.doing}"
    if error is None and first.stderr_tail:
        yield "the end of its stderr:"
        yield from (f"  {line}" for line in first.stderr_tail)
    yield from _of_blamed(found, hosts)
    if first.error_file:
        yield f"error file: {first.error_file}"
    if first.stderr_file:
        yield f"stderr: {first.stderr_file}"
    yield from _fold("failed as well", found.others)
    yield from _fold("failed because of it", found.victims)
    yield from _of_victims(found)
    yield from _clocks(found)


def _shared_details(evidence: Sequence[Evidence]) -> list[str]:
    """What all of them say below their first line: not 'this rank is the odd one'."""
    all_details = [one.error.details for one in evidence if one.error is not None]
    return [line for line in all_details[0] if all(line in details for details in all_details)]


def _of_victims(found: RootCause) -> Iterator[str]:
    """For a rank that left and has no word for it: what the first of its victims says."""
    victim = next((one.error for one in found.victims if one.error is not None), None)
    if found.part is Part.LEAVER and victim is not None:
        yield from victim.details[:_MOST_DETAILS]


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
                else f"rank {rank}: nothing is known of its end here; it may be on another host"
            )
        elif one.record is not None and one.record.doing:
            end = "it was ended by the launcher" if one.end.was_asked else f"it {one.how}"
            yield f"rank {rank}: {one.record.doing}; {end}"


def _fold(title: str, evidence: Sequence[Evidence]) -> Iterator[str]:
    """Failures with equal words in one line: 'ranks 0-1,3 failed because of it: PeerLost: ...'."""
    by_words: dict[str, list[Evidence]] = {}
    for one in evidence:
        by_words.setdefault(one.how, []).append(one)
    for how, several in list(by_words.items())[:_MOST_DETAILS]:
        cut = how if len(how) <= _MOST_REASON else how[:_MOST_REASON] + "..."
        yield f"{_who(several)} {title}: {cut}"
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


def _restarts(outcome: Outcome) -> Iterator[str]:
    if outcome.max_restarts or outcome.attempt:
        yield f"restarts used: {outcome.attempt} of {outcome.max_restarts}"


def _hint(found: RootCause) -> str:
    first = found.first[0]
    error, end = first.error, first.end
    if error is not None and error.hint:
        return error.hint
    if found.part is Part.LEAVER:
        hints = (one.error.hint for one in found.victims if one.error is not None)
        return next(filter(None, hints), "")
    if end.cause == "oom" or first.reason.startswith("MemoryError"):
        return "smaller batches, fewer ranks on this host, or more memory"
    if not first.reason and end.signal == signal.SIGKILL:
        return (
            f"whoever sent SIGKILL left no trace; if it was the kernel, dmesg on {end.host} says so"
        )
    if not first.reason and end.signal == signal.SIGTERM:
        return "SIGTERM came from outside: from a scheduler that ends the job, or a person"
    if not first.reason and end.signal == signal.SIGBUS:
        return (
            f"often /dev/shm or a disk is full; see df on {end.host}; "
            "or a file of the run folder was cut short"
        )
    if not first.reason and end.signal in _CRASHES:
        return "@distdbg.record on main(), or PYTHONFAULTHANDLER=1, prints where the crash was"
    if not first.reason and end.cause == "exited" and found.part is Part.CAUSE:
        return "@distdbg.record on main() brings its traceback here"
    if not first.reason and first.record is not None:
        return f"python -m distdbg.record {first.record.path}"
    return ""


# ------------------------------------------------------------------------------------------ words


def _who(evidence: Iterable[Evidence]) -> str:
    ranks = [one.rank for one in evidence]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _count(count: int, which: str = "") -> str:
    return f"{count} {which}rank{'' if count == 1 else 's'}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
