"""The one report of a launcher whose job failed: what kind of failure, the root cause first. Pure.

RANK DIED: rank 2 was killed by SIGSEGV (host n14, pid 8812)
  ranks 0-1,3 were terminated because of it
  at its end: in all_reduce #12 on group 'dp' for 0.1 s, train.py:80 (step)
  ...
  hint: ...
  run folder: /tmp/distdbg-1000/20261121-130501-1f09ac
  next: distdbg analyze 20261121-130501-1f09ac
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.control.words import AGENT, AbortWords
from distdbg.diagnose import headline
from distdbg.diagnose.traits import Trait
from distdbg.errors import format_ranks
from distdbg.launch.by_verdict import better_than, has_died, has_failed, was_aborted
from distdbg.launch.cause import Cause, make_cause, say_attempts
from distdbg.launch.ddp_errors import ddp_error, end_facts, shown_of_ddp
from distdbg.launch.diagnosis import DEAD_RANK, DEADLOCK, MISSING_RANK, Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.hints import hint_of
from distdbg.launch.last_seen import LastSeen
from distdbg.launch.late_ranks import (
    facts_of_interrupted,
    facts_of_late,
    hint_of_end,
    hint_of_late,
    is_of_joining,
    known_of_late,
    shown_of_late,
)
from distdbg.launch.report_details import (
    MAX_DETAILS,
    all_details,
    cut_reason,
    fold,
    ran_out,
    say_count,
    say_who,
    thread_error,
    were,
)
from distdbg.launch.report_layout import LaterLine, lay_out
from distdbg.launch.root_cause import LossRole, RootCause, count_failed, find_root_cause
from distdbg.record.ends import signal_name
from distdbg.record.printable import printable

#: What does not fit into the first line of a terminal goes below.
_FIRST_LINE: Final = 80
#: The `AbortWords.type` of a rank that is gone.
_DEAD_RANK: Final = "dead rank"
#: The errors of findings that show more than the error: the ranks compare one call, and not those before it.
ERRORS_OF_KINDS: Final = {"mismatch": "MismatchError", "diverged replicas": "DivergedError"}
#: What no signal makes: it failed before one came.
_PROVEN: Final = frozenset((headline.MISMATCH, headline.OUT_OF_MEMORY))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What a launcher knows when its job is over."""

    evidence: Sequence[LostRankEvidence] = ()
    """About the last start of the ranks, from all hosts where they are known."""
    run_folder: str = ""
    attempt: int = 0
    max_restarts: int = 0
    before: Sequence[Cause] = ()
    """The causes of the attempts that failed before this one."""
    interrupted: int | None = None
    """The signal that ended the launcher."""
    stopped_by: str = ""
    """The user who asked for that by `distdbg stop`."""
    struck: int | None = None
    """The signal that somebody else ended all ranks with, in one blow."""
    doing: Sequence[str] = ()
    """What the ranks did when it came."""
    because: str = ""
    """Why the launcher terminated its ranks though none of them had failed first: 'host n04 is gone'."""
    is_elsewhere: bool = False
    """Whether that was on another host, whose launcher ends with `code`."""
    code: int = 1
    hosts: Mapping[int, str] = field(default_factory=dict)
    """The hosts of the ranks that ran elsewhere."""
    verdict: AbortWords | None = None
    """For which the agents have ended the job."""
    seen: Mapping[int, LastSeen] = field(default_factory=dict)
    """Where ranks were, as the agent of this host saw them last."""
    hang: str = ""
    """What a job hung in when a signal ended it: 'ranks 0-1 waited 99 s for rank 2, asleep ...'."""
    waited: str = ""
    """The same of waits that were too short for that: 'ranks 0-1 had waited 2.1 s in ...'."""
    diagnosis: Diagnosis | None = None
    """What the records show of a deadlock, or of ranks that left while others waited for them."""
    memory_limit: str = ""
    """The limit of the ranks of this host: '2.0 GiB (cgroup)'."""
    losses: str = ""
    """Which files could not be written: 'not written since 13:05:01: ...'."""
    analyze: str = ""
    """What `distdbg analyze` is to be called with: the run's name, or its folder."""


def exit_code(outcome: JobOutcome) -> int:
    """The first failing rank's, as a shell says it: 128 + n for a signal; 0: nothing failed."""
    if outcome.interrupted is not None:
        return 128 + outcome.interrupted
    found = find_root_cause(outcome.evidence)
    if found is None or found.role is LossRole.TERMINATED or _was_elsewhere(outcome, found):
        return outcome.code if outcome.because or found is not None else 0
    for one in (*found.first, *found.others, *found.victims, *found.terminated):
        if one.end.shell_code:
            return one.end.shell_code
    return 1


def report(outcome: JobOutcome, *, width: int | None = None, is_coloured: bool = False) -> str:
    """The lines for stderr, each with its end; '' when nothing failed.

    `width` and colour are those of a terminal; None: a file, where no line is broken.
    """
    found = count_failed(find_root_cause(outcome.evidence))
    word = _word(outcome, found)
    lines, hint = _lines(outcome, found, word)
    if not lines:
        return ""
    if outcome.interrupted is not None and _had_failed(outcome, found):
        lines += [*_interrupted(outcome)]
    restarts = _restarts(outcome, found, make_cause(word, lines, hint, outcome.attempt + 1))
    later = [line for line in lines[1:] if isinstance(line, LaterLine)]
    lines = [line for line in lines if line not in later]
    if hint:  # before what is long
        lines.append(f"hint: {hint}")
    used = _used(outcome, found)
    if used is not None:
        lines += [line for line in used.source if line not in lines]
    lines += restarts
    if outcome.losses:
        lines.append(outcome.losses)
    lines += later
    if outcome.run_folder:
        lines.append(f"run folder: {outcome.run_folder}")
    if outcome.analyze and (outcome.evidence or outcome.attempt):  # else there is nothing to read
        lines.append(f"next: distdbg analyze {outcome.analyze}")
    return lay_out(word, [printable(line) for line in lines], width=width, is_coloured=is_coloured)


def cause_of(outcome: JobOutcome) -> Cause | None:
    """The same in short, of an attempt after which there is another one; None: nothing failed."""
    found = find_root_cause(outcome.evidence)
    word = _word(outcome, found)
    lines, hint = _lines(outcome, found, word)
    return make_cause(word, lines, hint, outcome.attempt + 1) if lines else None


def _lines(outcome: JobOutcome, found: RootCause | None, word: str) -> tuple[list[str], str]:
    """What failed, the root cause first, and the hint; nothing where nothing has."""
    hint = ""
    if _was_stopped(outcome, found):
        lines = [*_interrupted(outcome)]
        lines += _meanwhile(found) if outcome.struck is None else ()
        if not outcome.waited and not outcome.hang:
            lines += outcome.doing
        if outcome.diagnosis is not None:
            lines += facts_of_interrupted(outcome.diagnosis, "\n".join(lines))
            is_reported = outcome.hang or Trait.HOLDS_ALWAYS in outcome.diagnosis.traits
            hint = outcome.diagnosis.advice if is_reported else ""
    elif _has_verdict(outcome, found):
        assert outcome.verdict is not None
        better = _better(outcome)
        lines = [*_by_verdict(outcome, word)]
        hint = (better.advice if better is not None else "") or outcome.verdict.hint
    elif found is None or found.role is LossRole.TERMINATED or _was_elsewhere(outcome, found):
        if found is None and not outcome.because:
            return [], ""
        lines = [*_ended(outcome, found)]
        if found is not None and not _was_elsewhere(outcome, found):
            hint = hint_of(found)
    elif (shown := _shown_waits(outcome, found)) is not None:
        lines = [*_diagnosed(found, shown)]
        hint = shown.advice or hint_of(found)
    elif (shown := shown_of_ddp(outcome.diagnosis, found)) is not None:
        lines = [*ddp_error(found, shown, _aftermath(found))]
        hint = shown.advice
    elif (shown := _shown_mismatch(outcome, found)) is not None:
        lines = [*_failed(found, outcome, word)]
        hint = shown.advice or hint_of(found)
    elif (shown := _shown_unseen(outcome, found)) is not None:
        lines = [*_diagnosed(found, shown)]
        hint = shown.advice or hint_of(found)
    else:
        known = known_of_late(outcome.diagnosis, outcome.seen, found)
        lines = [*_failed(found, outcome, word)]
        hint = (
            (known.advice if known else "")
            or hint_of_late(outcome.seen, found)
            or hint_of_end(outcome.diagnosis)
            or hint_of(found)
        )
    return lines, hint


def _used(outcome: JobOutcome, found: RootCause | None) -> Diagnosis | None:
    """The diagnosis that the lines are by; None: they are by how processes ended alone."""
    if found is None:
        return None
    if _was_stopped(outcome, found):
        return outcome.diagnosis
    if outcome.interrupted is not None:
        return None
    if _has_verdict(outcome, found):
        return _better(outcome)
    if found.role is LossRole.TERMINATED or _was_elsewhere(outcome, found):
        return None
    return (
        _shown_waits(outcome, found)
        or shown_of_ddp(outcome.diagnosis, found)
        or _shown_mismatch(outcome, found)
        or shown_of_late(outcome.diagnosis, found)
        or _shown_dead(outcome, found)
    )


def _shown_dead(outcome: JobOutcome, found: RootCause) -> Diagnosis | None:
    """Where a rank came last that was killed without a word."""
    diagnosis, first = outcome.diagnosis, found.first[0]
    is_it = diagnosis is not None and (diagnosis.kind, diagnosis.ranks) == (
        DEAD_RANK,
        (first.rank,),
    )
    return diagnosis if is_it and not first.reason and first.end.cause == "signal" else None


def _shown_waits(outcome: JobOutcome, found: RootCause) -> Diagnosis | None:
    """What the records show of who waited for whom: for one that left, or until they gave up."""
    diagnosis = outcome.diagnosis
    if diagnosis is None:
        return None
    is_all = diagnosis.kind == DEADLOCK or is_of_joining(diagnosis)
    # Ranks that name each other: one has left a group of theirs, and went on.
    is_mutual = found.role is LossRole.VICTIM and (is_all or diagnosis.kind == MISSING_RANK)
    is_shown = found.role is LossRole.LEAVER or (found.role is LossRole.SUSPECT and is_all)
    return diagnosis if is_shown or is_mutual else None


def _shown_unseen(outcome: JobOutcome, found: RootCause) -> Diagnosis | None:
    """What the records show of ranks that did not come, where no agent saw what they did instead."""
    diagnosis = shown_of_late(outcome.diagnosis, found)
    if diagnosis is None or diagnosis.kind != MISSING_RANK:
        return None
    return None if any(rank in outcome.seen for rank in diagnosis.ranks) else diagnosis


def _shown_mismatch(outcome: JobOutcome, found: RootCause) -> Diagnosis | None:
    """What the records show of a mismatch: the ranks compare one call, and not those before it."""
    diagnosis = outcome.diagnosis
    if diagnosis is None or found.first[0].error_type != ERRORS_OF_KINDS.get(diagnosis.kind):
        return None
    return diagnosis


def _was_stopped(outcome: JobOutcome, found: RootCause | None) -> bool:
    """Whether somebody ended the job, and nothing had failed before."""
    if outcome.interrupted is None:
        return outcome.struck is not None
    return not _had_failed(outcome, found)


def _had_failed(outcome: JobOutcome, found: RootCause | None) -> bool:
    """Whether the job had failed for good when a signal ended the launcher: the signal came too late."""
    if found is None or _has_verdict(outcome, found):
        return found is not None
    return found.role is LossRole.CAUSE and _word_of_end(found.first[0]) in _PROVEN


def _word_of_end(one: LostRankEvidence) -> str:
    return headline.of_end(cause=one.end.cause, signal=one.end.signal, error_type=one.error_type)


def _word(outcome: JobOutcome, found: RootCause | None) -> str:
    if _was_stopped(outcome, found):
        return headline.HUNG if outcome.hang else headline.STOPPED
    if _has_verdict(outcome, found):
        assert outcome.verdict is not None
        better = _better(outcome)
        if better is not None and has_died(outcome.verdict, better):
            return headline.of_kind(better.kind, better.what)
        return headline.of_kind(outcome.verdict.type, outcome.verdict.what)
    if found is None or found.role is LossRole.TERMINATED or _was_elsewhere(outcome, found):
        return headline.FAILED
    if (shown := _shown_waits(outcome, found)) is not None:
        return headline.of_kind(shown.kind, shown.what)
    if found.role is LossRole.LEAVER:
        return headline.MISMATCH
    first = found.first[0]
    if first.error is not None and first.error.aborted_by not in ("", AGENT):
        return headline.STOPPED  # by a person, whose words follow
    if _is_missing(found):
        return headline.HUNG
    return _word_of_end(first)


def _is_missing(found: RootCause) -> bool:
    """Whether a rank never came to the making of the first group."""
    first = found.first[0]
    is_meeting = first.error_type == "RendezvousError" and bool(first.waits_for)
    return is_meeting and found.role is LossRole.SUSPECT


# ------------------------------------------------------------------------------- the agents' verdict


def _has_verdict(outcome: JobOutcome, found: RootCause | None) -> bool:
    """Whether it says more than how processes ended: of a rank that died they say enough."""
    verdict = outcome.verdict
    if verdict is None or found is None:
        return False
    return verdict.type != _DEAD_RANK or found.role is not LossRole.CAUSE


def _by_verdict(outcome: JobOutcome, word: str) -> Iterator[str]:
    verdict = outcome.verdict
    assert verdict is not None
    failed = [one for one in outcome.evidence if was_aborted(one, verdict)]
    ended = sum(one.end.was_asked and not has_failed(one) for one in outcome.evidence)
    here = " of this host" if outcome.is_elsewhere else ""
    many = f"the job was aborted: {say_count(len(failed))}{here} ended with an error because of it"
    if ended:
        many += f", {ended} {were(ended)} terminated"
    better = _better(outcome)
    yield verdict.what if better is None else better.what
    details = verdict.details if better is None else better.evidence
    yield from details[:MAX_DETAILS]
    for rank in list(verdict.ranks)[:MAX_DETAILS]:
        if rank in outcome.seen and word == headline.HUNG:
            yield f"rank {rank} was {outcome.seen[rank].text}"
    yield many
    own = [one for one in failed if not one.because_of and one.rank not in verdict.ranks]
    yield from fold("failed as well", own)


def _better(outcome: JobOutcome) -> Diagnosis | None:
    return better_than(outcome.verdict, outcome.diagnosis)


def _diagnosed(found: RootCause, diagnosis: Diagnosis) -> Iterator[str]:
    """Lines of a rank that left: what the records show comes first, it may be another rank's mistake."""
    yield diagnosis.what
    yield from diagnosis.evidence[:MAX_DETAILS]
    yield from _aftermath(found)
    yield from fold("failed as well", found.others)
    yield from fold("failed because of it", found.victims, is_brief=True)


# ------------------------------------------------------------------------------------ first lines


def _interrupted(outcome: JobOutcome) -> Iterator[str]:
    if outcome.hang:
        yield outcome.hang
    after = f" after {outcome.waited}" if outcome.waited else ""
    if outcome.interrupted is None:
        name = signal_name(outcome.struck or 0)
        yield f"all {len(outcome.evidence)} ranks were killed by {name} at once, from outside{after}"
        return
    number = outcome.interrupted
    name = "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal_name(number)
    how = (
        f"stopped by {outcome.stopped_by} (distdbg stop)"
        if outcome.stopped_by
        else f"interrupted by {name}"
    )
    count = sum(one.end.was_asked for one in outcome.evidence)
    ended = f"{say_count(count)} {were(count)} terminated" if count else ""
    if not outcome.evidence:
        how += " before any rank was started"
    if after:
        yield f"{how}{after}"
        if ended:
            yield ended
    else:
        yield "; ".join(filter(None, (how, ended)))


def _was_elsewhere(outcome: JobOutcome, found: RootCause) -> bool:
    """Whether the ranks of this host failed because of what happened on another one."""
    return bool(outcome.because) and found.is_elsewhere


def _ended(outcome: JobOutcome, found: RootCause | None) -> Iterator[str]:
    why = outcome.because or "the launcher terminated its ranks"
    here = " of this host" if outcome.is_elsewhere else ""
    failed = (
        () if found is None or found.role is LossRole.TERMINATED else (*found.first, *found.victims)
    )
    ended = sum(one.end.was_asked for one in outcome.evidence)
    many = []
    if failed:
        many.append(f"{say_count(len(failed))}{here} failed because of it")
    if ended:
        many.append(f"{say_count(ended)}{here} {were(ended)} terminated")
    yield "; ".join([why, " and ".join(many)]) if many else why
    yield from fold("failed because of it", failed, is_brief=True)


def _failed(found: RootCause, outcome: JobOutcome, word: str) -> Iterator[str]:
    first = found.first[0]
    what = f"{say_who(found.first)} {_how(found)}"
    if word == headline.MISMATCH and first.error_type == "MismatchError":
        what = cut_reason(first.said)  # which ranks differ stands in it
    shown = _shown_mismatch(outcome, found)
    if shown is not None:
        what = cut_reason(shown.what)
        if first.said.startswith(what.removesuffix(" ...")):
            what = cut_reason(first.said)  # there it stands in full
    if _is_missing(found):
        names, is_one = format_ranks(found.named), len(found.named) == 1
        noun, it = ("rank", "it") if is_one else ("ranks", "them")
        place = outcome.seen.get(min(found.named), LastSeen("")).text if is_one else ""
        doing = f", {place}" if place else ""
        yield f"{noun} {names} never joined{doing}; {say_who(found.first)} waited for {it}"
    place = LaterLine(
        f"host {first.end.host}, pid {first.end.pid}" if len(found.first) == 1 else ""
    )
    # A rank that gave up by itself was in an op until then: what it did since says nothing.
    gave_up = {one.rank for one in (*found.others, *found.victims) if one.waits_for}
    late = [rank for rank in sorted(found.named - gave_up) if rank in outcome.seen]
    if found.role is LossRole.SUSPECT and late:
        # The ranks that are waited for come before those that gave up.
        for rank in late[:MAX_DETAILS]:
            if not (_is_missing(found) and len(found.named) == 1):  # the first line has it
                yield f"rank {rank} was {outcome.seen[rank].text}"
            if error := thread_error(found, rank):
                yield f"its {error}"
        yield what
        what = ""
        if (known := known_of_late(outcome.diagnosis, outcome.seen, found)) is not None:
            yield from facts_of_late(known, "; ".join(outcome.seen[rank].text for rank in late))
    out = ran_out(found) if shown is None else ""
    if out:  # the rest follows from it
        yield out.replace("; ", ", ", 1)
    used = len(word) + 2 + len(what)
    if what and place and used + len(place) + 3 <= _FIRST_LINE:
        what, place = f"{what} ({place})", LaterLine("")
    if what:
        yield what
    if place:
        yield place
    yield from _aftermath(found)
    yield from end_facts(first, outcome.memory_limit, outcome.evidence)
    if shown is not None:
        said = first.said
        yield from [] if cut_reason(said) in (what, *shown.evidence) else [cut_reason(said)]
    details = all_details(found, outcome.hosts, shown)
    yield from (line for line in details if line != out or not out)


def _how(found: RootCause) -> str:
    return cut_reason(found.how)


def _aftermath(found: RootCause) -> Iterator[str]:
    """The ranks that were terminated; those that failed have lines of their own below."""
    if count := len(found.terminated):
        who = say_who(found.terminated)
        yield LaterLine(f"{who} {were(count)} terminated because of it")


# ------------------------------------------------------------------------------------- last lines


def _meanwhile(found: RootCause | None) -> Iterator[str]:
    """What had failed by itself when the launcher was interrupted."""
    if found is not None and found.role is not LossRole.TERMINATED:
        yield f"before, {say_who(found.first)} {_how(found)}"


def _restarts(outcome: JobOutcome, found: RootCause | None, last: Cause) -> Iterator[str]:
    if outcome.max_restarts or outcome.attempt:
        yield f"restarts used: {outcome.attempt} of {outcome.max_restarts}"
    if outcome.before:
        has_failed = outcome.interrupted is None or _had_failed(outcome, found)
        yield from say_attempts([*outcome.before, *([last] if has_failed else [])])
