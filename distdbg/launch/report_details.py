"""What a launcher's report says below its first lines: of the cause, whom it names, and its victims. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from distdbg.errors import format_ranks
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.report_layout import LaterLine
from distdbg.launch.root_cause import LossRole, RootCause
from distdbg.record.carried_traceback import words_of_failed
from distdbg.record.error_file import ErrorFacts
from distdbg.record.format import Exit
from distdbg.record.printable import shorten, shorten_middle
from distdbg.record.printed_stack import own_frame, read_stack
from distdbg.record.rank_state import NO_OP_YET
from distdbg.record.recorded_frame import RecordedFrame

MAX_DETAILS: Final = 8
_MAX_REASON: Final = 240
_MAX_FRAMES: Final = 3
_ALL_FRAMES: Final = 1000
#: Variables of the line that raised, and how many of them are told.
_NAME: Final = re.compile(r"\b([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)?\b")
_MAX_VALUES: Final = 5
#: Errors that only say what another rank did.
_KNOWN: Final = frozenset(
    ("PeerLost", "RankLeft", "JobAborted", "DebuggerQuit", "OpTimeout", "MismatchError")
)
#: What the end of the job makes of no interest.
_UNUSABLE: Final = ("the group is unusable", "no data was exchanged")
#: What ranks have found in the records of their host.
_RAN_OUT: Final = re.compile(r"ranks? [\d,-]+ ran out of batches at step \d")
#: Clocks of different hosts are not trusted to be closer.
_SKEW_NS: Final = 10**9


_MAX_LAST_FRAMES = 3
_MAX_SOURCE = 100
_FRAME = re.compile(r'File "(.+)", line (\d+)(?:, in (.+))?')
_LIBRARY = re.compile(r'File "[^"]*/lib/python3[^/"]*/|File "<|\.p(?:yx|xd|xi)", line')
_OURS = f'File "{Path(__file__).parents[1]}/'


def all_details(
    found: RootCause, hosts: Mapping[int, str], diagnosis: Diagnosis | None = None
) -> Iterator[str]:
    """`diagnosis` is what the records show of its error, in place of what the error says."""
    first = found.first[0]
    shown = () if diagnosis is None else diagnosis.evidence
    error = first.error
    if error is not None:
        # The details of our own errors say it; of others the rest of a text of several lines.
        reported = [line for line in shown if not line.startswith(_UNUSABLE)]
        yield from (reported or _shared_details(found.first) or _own_details(error))[:MAX_DETAILS]
        if error.cause:
            yield cut_reason(f"caused by {error.cause}")
        if not error.details:
            yield from (inner := inner_line(error))
            frames = last_frames(error.traceback)
            # What was on the console already stands here as one line.
            own = frames if first.stderr_file else own_line(first)
            yield from (line for line in own if line not in inner)
        yield from map(cut_reason, error.notes)
    elif first.crash:
        yield f"crashed at {', called from '.join(map(_site, first.crash[:_MAX_FRAMES]))}"
        if first.record is not None and first.record.doing:
            yield first.record.doing.replace(" ago, ", " before, ", 1)
    elif first.record is not None and first.record.how is Exit.RETURNED:
        if first.record.exit_call and not first.reason:
            yield first.record.exit_call
    elif first.record is not None and first.record.doing:
        doing = first.record.doing
        if first.record.exit_call and not first.reason:
            yield first.record.exit_call
        yield doing if first.reason else f"at its end: {doing.replace(' ago, ', ' before, ', 1)}"
    if error is None and first.stderr_tail:
        yield "the end of its stderr:"
        yield from (f"  {line}" for line in first.stderr_tail)
    yield from _of_named(found, hosts)
    if error_file := _error_file(found, () if diagnosis is None else diagnosis.ranks):
        yield LaterLine(f"error file: {error_file}")
    if first.stderr_file:
        yield LaterLine(f"stderr: {first.stderr_file}")
    yield from fold("failed as well", found.others)
    yield from fold("failed because of it", found.victims, is_brief=True)
    yield from _of_victims(found)
    yield from _clocks(found)


def _error_file(found: RootCause, ranks: Sequence[int]) -> str:
    """The error file of a rank of the cause, though others may have failed before it; else of the first."""
    known = (*found.first, *found.others, *found.victims, *found.terminated)
    of_cause = (one.error_file for one in known if one.rank in ranks)
    return next(filter(None, of_cause), found.first[0].error_file)


def own_line(one: LostRankEvidence) -> list[str]:
    """'at train.py:80 (step): y = x / n': the program's own line, however deep the library below it is.

    Behind it '  n = 0', where that is known.
    """
    if one.error is None:
        return []
    lines = last_line(last_frames(one.error.traceback, most=_ALL_FRAMES))
    frame = own_frame(read_stack(one.error.traceback))
    known = one.error.values.get((frame.file, frame.line)) if frame is not None else None
    if known is not None and len(lines) == 1:
        text = lines[0].partition(": ")[2]
        names = (found[at] for found in _NAME.finditer(text) for at in (0, 1) if found[at])
        said = [f"{name} {known[name]}" for name in dict.fromkeys(names) if name in known]
        lines += [f"  {', '.join(said[:_MAX_VALUES])}"] if said else []
    return lines


def inner_line(error: ErrorFacts) -> list[str]:
    """The program's own line where the error was raised in a worker, or on another rank; [] without one."""
    frames = last_frames(error.inner, most=_ALL_FRAMES)
    own = [line for line in frames if _FRAME.match(line) and not _LIBRARY.search(line)]
    return last_line(frames) if own else []


def _site(frame: RecordedFrame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line} ({frame.function})"


def _own_details(error: ErrorFacts) -> list[str]:
    if error.details:
        return [line for line in error.details if not line.startswith(_UNUSABLE)]
    said_later = f"hint: {error.hint}"
    return [line for line in error.text.splitlines()[1:] if line.strip() != said_later]


def ran_out(found: RootCause) -> str:
    """Which rank ran out of batches, as the first that says so has it; '' where none does."""
    if found.role is LossRole.CAUSE and found.first[0].error_type not in _KNOWN:
        return ""  # an error of the program itself is no consequence of that
    errors = [one.error for one in (*found.first, *found.victims) if one.error is not None]
    said = (line for error in errors for line in error.details if _RAN_OUT.match(line))
    return next(said, "")


def _shared_details(evidence: Sequence[LostRankEvidence]) -> list[str]:
    """What all of them say below their first line: not 'this rank is the odd one'."""
    all_details = [one.error.details for one in evidence if one.error is not None]
    return [
        line
        for line in all_details[0]
        if all(line in details for details in all_details) and not line.startswith(_UNUSABLE)
    ]


def _of_victims(found: RootCause) -> Iterator[str]:
    """What the first victim says of a rank that left and has no word for it."""
    victim = next((one.error for one in found.victims if one.error is not None), None)
    if found.role is LossRole.LEAVER and victim is not None:
        details = [line for line in victim.details if not line.startswith(_UNUSABLE)]
        yield from details[:MAX_DETAILS]


def _of_named(found: RootCause, hosts: Mapping[int, str]) -> Iterator[str]:
    """What is known of the ranks that the first ones name."""
    known = {e.rank: e for e in (*found.victims, *found.terminated, *found.others)}
    for rank in sorted(found.named)[:MAX_DETAILS]:
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
                is_said = not one.end.was_asked and one.record.doing.startswith(one.how)
                yield f"rank {rank}: {one.record.doing}{'' if is_said else f'; {end}'}"
            elif not one.end.was_asked:
                yield f"rank {rank}: {end}"


def thread_error(found: RootCause, rank: int) -> str:
    """What a rank waits for may be a thread that is gone."""
    known = {one.rank: one.record for one in (*found.victims, *found.terminated, *found.others)}
    record = known.get(rank)
    return "" if record is None else record.thread_error


def _has_last_op(found: RootCause, rank: int) -> bool:
    """Whether the error itself has the last op of a rank that it names."""
    error = found.first[0].error
    details = () if error is None else error.details
    said = [line for line in details if line.startswith((f"rank {rank} ", f"rank {rank}: "))]
    return any("last op " in line or NO_OP_YET in line for line in said)


def fold(
    title: str, evidence: Sequence[LostRankEvidence], *, is_brief: bool = False
) -> Iterator[str]:
    """Failures with equal words in one line: 'ranks 0-1,3 failed because of it: PeerLost: ...'."""
    by_words: dict[str, list[LostRankEvidence]] = {}
    for one in evidence:
        # The root cause says the rest of errors of ours.
        is_said = one.error_type in _KNOWN or words_of_failed(one.reason)
        how = one.error_type if is_brief and is_said else one.how
        by_words.setdefault(how, []).append(one)
    for how, several in list(by_words.items())[:MAX_DETAILS]:
        yield f"{say_who(several)} {title}: {cut_reason(how)}"
    hidden = list(by_words.values())[MAX_DETAILS:]
    if hidden:
        ranks = format_ranks(one.rank for several in hidden for one in several)
        yield f"ranks {ranks} {title}, in {len(hidden)} other ways"


def _clocks(found: RootCause) -> Iterator[str]:
    """The ranks that may have been first too, since hosts do not agree on the time."""
    first = found.first[0]
    near = [
        one
        for one in found.others
        if one.end.host != first.end.host and one.failed_wall_ns - first.failed_wall_ns < _SKEW_NS
    ]
    if near:
        yield (
            f"{say_who(near)} failed on {'another host' if len(near) == 1 else 'other hosts'} "
            "within a second: clocks of hosts differ, so that may have been first"
        )


def say_who(evidence: Iterable[LostRankEvidence]) -> str:
    ranks = [one.rank for one in evidence]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def say_count(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def were(count: int) -> str:
    return "was" if count == 1 else "were"


def cut_reason(text: str) -> str:
    return shorten_middle(text, _MAX_REASON)


def last_frames(traceback: str, ours: str = _OURS, most: int = _MAX_LAST_FRAMES) -> list[str]:
    """The lines of the last frames of the last exception, indented as Python does below its first.

    Frames of distdbg itself are left out, unless there are no others.
    """
    blocks: list[list[str]] = []
    before: list[list[str]] = []
    is_inside = False
    for line in traceback.splitlines():
        if line.startswith("  + Exception Group Traceback "):
            return _frames_of_group(traceback, ours, most)
        if line.startswith("Traceback ") and line.rstrip().endswith(":"):
            before, blocks, is_inside = blocks or before, [], True  # raised before, and handled
        elif is_inside and line.startswith("  File "):
            blocks.append([line[2:]])
        elif is_inside and line.startswith("    "):
            if blocks and set(line.strip()) - set("^~"):  # no markers
                blocks[-1].append(line[2:])
        elif not line.startswith("  ["):  # '[Previous line repeated 990 more times]'
            is_inside = False  # the text of the exception
    blocks = blocks or before  # a text of the exception may look like the head of a traceback
    theirs = [block for block in blocks if ours not in block[0]] or blocks
    return [line for block in theirs[-most:] for line in block]


def _frames_of_group(traceback: str, ours: str, most: int) -> list[str]:
    """Where an exception group was raised; its lines have a rail in front."""
    lines = ["Traceback (most recent call last):"]
    for line in traceback.partition("+ Exception Group Traceback ")[2].splitlines()[1:]:
        if not line.startswith("  |   "):
            break
        lines.append(line[4:])
    return last_frames("\n".join(lines), ours, most)


def last_line(frames: list[str]) -> list[str]:
    """One of such lines: 'at train.py:80 (step): y = x / 0'; all of them where the last frame is none."""
    places = [i for i, line in enumerate(frames) if _FRAME.match(line)]
    # The program's own line, not that of a library below it.
    own = [i for i in places if not _LIBRARY.search(frames[i])]
    at = (own or places or [-1])[-1]
    found = _FRAME.match(frames[at]) if at >= 0 else None
    if found is None:
        return frames
    function = f" ({found[3]})" if found[3] else ""
    end = next((i for i in places if i > at), len(frames))
    source = " ".join(line.strip() for line in frames[at + 1 : end])
    text = f": {shorten(source, _MAX_SOURCE)}" if source else ""
    return [f"at {os.path.basename(found[1])}:{found[2]}{function}{text}"]
