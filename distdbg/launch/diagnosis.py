"""What `distdbg analyze` finds in the records of a job that failed, for the launcher's report.

How processes ended shows that a rank left while others waited for it. Whether it made a call too few, another
one made one too many, or a message was taken by the wrong recv: that takes the records of all ranks. An agent
proves a deadlock by what ranks wait in; why they do, the calls before it may show.

It runs in a process of its own and under a deadline: a launcher does not load the diagnosis, and a report
without it is better than none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distdbg.diagnose.traits import FactKind, StackRole, Trait
from distdbg.errors import format_ranks
from distdbg.record.folders import record_name
from distdbg.record.join_calls import has_join_calls
from distdbg.record.verdict_file import write_verdict_file

if TYPE_CHECKING:
    from distdbg.diagnose.finding import Evidence, Finding

#: The kind of finding, of which calls before it may show the cause.
DEADLOCK: Final = "deadlock"
DEAD_RANK: Final = "dead rank"
MISSING_RANK: Final = "missing rank"
#: What DDP raises one step after a parameter was not used, and of models that differ: the records show which.
DDP_ERRORS: Final = (
    "finished reduction in the prior iteration",
    "DDP expects same model across all ranks",
)
#: Longer than it takes for the largest records of one host; a person waits for the prompt.
_DEADLINE_S: Final = 15.0
_MAX_EVIDENCE: Final = 6
#: Frames of a stack whose source is told, and lines in all.
_MAX_FRAMES: Final = 4
#: What is no place at which its ranks are now.
_APART: Final = frozenset(role for role in StackRole if role.is_apart)
_MAX_LINES: Final = 10
#: Lines of each stack, before there are more of the first one.
_MIN_LINES: Final = 5
#: Variables of a rank; they mean nothing to a command.
_OF_RANKS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "DISTDBG_RUN_DIR")


class _Frame(NamedTuple):
    """A line of a stack; see `render/schema.py`."""

    site: str
    text: str
    notes: tuple[str, ...]


class _Stack(NamedTuple):
    """The lines of these ranks, the innermost first."""

    ranks: tuple[int, ...]
    what: str
    is_cause: bool
    role: str
    frames: tuple[_Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The finding that explains the failure."""

    kind: str
    what: str
    ranks: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    facts: tuple[Evidence, ...] = ()
    """All of the evidence that is of a kind."""
    advice: str = ""
    traits: frozenset[str] = frozenset()
    """Each a `Trait`."""
    source: tuple[str, ...] = ()
    """'rank 2 at train.py:50 (fit): dist.all_reduce(sums)', and what stands around it, indented."""


def diagnose_run(
    run_folder: str, attempt_folder: Path, ranks: Mapping[int, int], *, with_notes: bool = False
) -> Diagnosis | None:
    """The root cause by the records of `ranks`; None where it cannot be known in time.

    `with_notes`: also what is no error, such as waits that a signal interrupted.
    """
    has_records = all((attempt_folder / record_name(rank)).exists() for rank in ranks)
    if not run_folder or not (has_records or has_join_calls(attempt_folder)):
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "distdbg", "analyze", "--json", run_folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: value for key, value in os.environ.items() if key not in _OF_RANKS},
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = read_diagnosis(done.stdout, with_notes=with_notes)
    if found is not None:
        # In place of what the agent has left, who saw the job before it was over.
        write_verdict_file(attempt_folder, done.stdout)
    return found


def read_diagnosis(document: bytes, *, with_notes: bool = False) -> Diagnosis | None:
    """The root of a document of `distdbg analyze --json`; None: it has none that is an error. Pure."""
    from distdbg.diagnose.verdict_document import read_verdict  # not by every launcher

    try:
        whole = json.loads(document)
        verdict = read_verdict(whole)
        root = None if verdict is None else verdict.root
        if root is None or not root.what or not (with_notes or root.severity == "error"):
            return None
        return _of_finding(root, [*map(_read_stack, whole.get("stacks", ()))])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_stack(plain: Mapping[str, Any]) -> _Stack:
    return _Stack(
        ranks=tuple(map(int, plain["ranks"])),
        what=str(plain["what"]),
        is_cause=bool(plain["is_cause"]),
        role=str(plain.get("role", "")),
        frames=tuple(
            _Frame(str(one["site"]), str(one["text"]), tuple(map(str, one["notes"])))
            for one in plain["frames"]
        ),
    )


def _of_finding(finding: Finding, stacks: Sequence[_Stack]) -> Diagnosis:
    return Diagnosis(
        kind=str(finding.kind),
        what=finding.what,
        ranks=finding.ranks,
        victims=finding.victims,
        evidence=tuple(_evidence(finding))[:_MAX_EVIDENCE],
        facts=tuple(fact for fact in finding.evidence if fact.kind is not None),
        advice=finding.advice,
        traits=finding.traits,
        source=tuple(_source_lines(stacks)),
    )


def _evidence(finding: Finding) -> Iterator[str]:
    # Where all ranks of a cycle wait at one line, the first line has the whole of it.
    is_whole = Trait.ONE_PLACE in finding.traits
    reported: list[str] = []
    for one in finding.evidence:
        is_one_wait = one.kind == FactKind.WAIT and len(one.all_ranks) == 1
        # The place of a fact may stand in another line that has it as well.
        if not (is_whole and is_one_wait) and not any(s.startswith(one.text) for s in reported):
            reported.append(one.text)
    yield from reported


def _say_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {format_ranks(ranks)}" if ranks else ""


def _source_lines(stacks: Sequence[_Stack]) -> Iterator[str]:
    """The first lines of each stack that is told, and more of the first stacks where there is room."""
    reported = [[*lines] for lines in _lines_of_stacks(stacks)]
    shown = [0] * len(reported)
    for least in (_MIN_LINES, _MAX_LINES):
        for at, lines in enumerate(reported):
            room = _MAX_LINES - sum(shown) + shown[at]
            shown[at] = max(shown[at], min(len(lines), least, room))
    for count, lines in zip(shown, reported, strict=True):
        yield from lines[:count]


def _lines_of_stacks(stacks: Sequence[_Stack]) -> Iterator[list[str]]:
    """The innermost line of each stack, and those around which there is something to be told; each once."""
    seen: set[str] = set()
    has_cause = any(stack.is_cause for stack in stacks)
    for stack in _merged(stacks):
        lines: list[str] = []
        for at, frame in enumerate(stack.frames[:_MAX_FRAMES]):
            site = os.path.basename(frame.site)
            # The callers of the function say what a rank waits for, and why it came there.
            near = 2 if stack.role == StackRole.HANGS else 1
            is_reported = frame.notes or not at
            is_reported = is_reported or (
                at <= near and (stack.is_cause or (at == 1 and not has_cause))
            )
            if site in seen or not frame.text or not is_reported:
                continue
            seen.add(site)
            who = _say_ranks(stack.ranks)
            what = ""
            if stack.role in _APART:
                what = stack.what.replace(" here", "", 1)
            elif not at and stack.role == StackRole.AFTER_OP:
                what = f"{'was' if len(stack.ranks) == 1 else 'were'} last seen"
            lines.append(f"{' '.join(filter(None, (who, what)))} at {site}: {frame.text}")
            lines += (f"  {note}" for note in frame.notes)
        yield lines


def _merged(stacks: Sequence[_Stack]) -> Iterator[_Stack]:
    """Ranks at the same lines once, however each of them ended there; what was left out stays apart."""
    found: dict[object, list[_Stack]] = {}
    for at, stack in enumerate(stacks):
        lines = tuple(frame.site for frame in stack.frames)
        key = at if stack.role in _APART else (stack.is_cause, lines)
        found.setdefault(key, []).append(stack)
    for alike in found.values():
        ranks = tuple(sorted({rank for stack in alike for rank in stack.ranks}))
        frames = tuple(
            frame._replace(notes=tuple(_notes(alike, at, ranks)))
            for at, frame in enumerate(alike[0].frames)
        )
        yield alike[0]._replace(ranks=ranks, frames=frames)


def _notes(alike: Sequence[_Stack], at: int, ranks: tuple[int, ...]) -> Iterator[str]:
    """What is told of this line of all of them, and of whom it is where it is not of all."""
    ranks_of: dict[str, set[int]] = {}
    for stack in alike:
        for note in stack.frames[at].notes:
            ranks_of.setdefault(note, set()).update(stack.ranks)
    for note, known in ranks_of.items():
        yield note if len(known) == len(ranks) else f"{note} on {_say_ranks(sorted(known))}"
