"""The stacks that explain a finding, with their source: those of the cause first, then of those that wait.

Terminal, page and JSON show the same. Files that may not be read have no text and no notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from distdbg.diagnose.finding import Finding, FindingKind, Role, Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import StackRole
from distdbg.record.entries import RecordedFrame
from distdbg.render.left_values import say_left_values
from distdbg.render.notes import LEFT_OUT, NoteRequest, wanted_of_cause, wanted_of_others
from distdbg.render.parting_values import Sides, parting_values, sides_of
from distdbg.render.set_at import set_at
from distdbg.render.source_line import SourceLines
from distdbg.render.stacks import FoldedStack, fold_stacks, other_threads, own_frames

#: Of another thread of a rank that waits for a lock.
_THREAD: Final = NoteRequest(origin=False)
#: Of a document for programs; and of which more than the lines is looked at.
_MOST_STACKS: Final = 4
_MOST_LETTERS: Final = 160
#: Frames of a stack of which the values of variables are told.
_MOST_VALUED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldFrame:
    """One line of a stack."""

    frame: RecordedFrame
    text: str
    """Its source; '' where there is none to be shown."""
    notes: tuple[str, ...] = ()
    """What stands around it: 'in `for batch in loader` (line 12)'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStack:
    """One stack and who has it."""

    ranks: tuple[int, ...]
    what: str
    is_cause: bool
    frames: tuple[ToldFrame, ...]
    """The innermost first."""
    role: StackRole = StackRole.SEEN


def tell_stacks(
    session: Session,
    verdict: Verdict,
    root: Finding,
    source: SourceLines,
    letters: int,
    *,
    is_whole: bool = False,
) -> list[ToldStack]:
    """`is_whole`: with the frames of libraries and of what started the program."""
    victims = root.victims or [r for r, role in verdict.roles.items() if role is Role.VICTIM]
    cause = fold_stacks(session, root.ranks)
    at_cause = [one.frames for one in cause]
    noted, sides = wanted_of_cause(session, root), sides_of(session, root)
    told: list[tuple[FoldedStack, NoteRequest | None]] = [
        (one, LEFT_OUT) for one in _left_out(session, root)
    ]
    told += [(one, noted) for one in cause]
    told += [(one, _THREAD) for rank in root.ranks for one in other_threads(session, root, rank)]
    count = len(told)
    told += [
        (one, wanted_of_others(session, root, one.frames, at_cause))
        for one in fold_stacks(session, set(victims) - set(root.ranks))
    ]
    return [
        ToldStack(
            ranks=one.ranks,
            what=one.what,
            is_cause=at < count,
            role=one.role,
            frames=tuple(
                _frames(
                    session,
                    one,
                    wanted if at < _MOST_STACKS else None,
                    source,
                    letters,
                    is_whole=is_whole,
                    is_raised=root.kind is FindingKind.DEAD_RANK and at < count,
                    sides=sides if at == 0 else (),
                )
            ),
        )
        for at, (one, wanted) in enumerate(told)
    ]


def _left_out(session: Session, root: Finding) -> Iterator[FoldedStack]:
    """From where a rank of the cause did not call what the others did, or called what they did not."""
    for fact in root.evidence:
        if fact.is_extra and fact.op is not None:
            ops = session.ranks[fact.op.rank].ops
            what = f"called {session.kind_of(fact.op)} here"
            frames = session.stacks[ops.stack[fact.op.at]]
            yield FoldedStack(
                ranks=fact.ranks[:1], what=what, frames=frames, role=StackRole.EXTRA_CALL
            )
        elif fact.is_left_out and fact.op is not None:
            ops = session.ranks[fact.op.rank].ops
            what = f"did not call {session.kind_of(fact.op)} here"
            if fact.op.rank not in fact.ranks:
                what += f", as rank {fact.op.rank} did"
            frames = session.stacks[ops.stack[fact.op.at]]
            yield FoldedStack(
                ranks=fact.ranks[:1], what=what, frames=frames, role=StackRole.LEFT_OUT
            )


def _frames(
    session: Session,
    stack: FoldedStack,
    wanted: NoteRequest | None,
    source: SourceLines,
    letters: int,
    *,
    is_whole: bool,
    is_raised: bool,
    sides: Sides,
) -> Iterator[ToldFrame]:
    frames = stack.frames if is_whole else own_frames(stack.frames)
    at = 0
    for _, alike in groupby(frames, lambda frame: (frame.file, frame.line)):
        *inner, frame = alike  # a comprehension, and the function that it stands in
        count = len(inner) + 1
        notes = () if wanted is None else tuple(source.notes_of(frames, at, wanted))
        parsed = source.parsed(frame.file) if at < _MOST_VALUED else None
        if parsed is not None:
            of_line = is_raised and not at
            values = say_left_values(session, stack.ranks, frame, parsed, of_line=of_line)
            notes = (*notes, values) if values else notes
        if at < _MOST_VALUED:
            parting = parting_values(session, sides, frame, notes)
            notes = (*notes, *parting)
            if parsed is not None:
                notes = (*notes, *(n for one in parting for n in set_at(parsed, frame.line, one)))
        if frame in inner:
            notes = (*notes, "called by itself, again and again")
        at += count
        yield ToldFrame(frame=frame, text=source.text_of(frame, letters), notes=notes)


def to_plain_stacks(
    session: Session, verdict: Verdict, source: SourceLines
) -> list[dict[str, Any]]:
    """For JSON; [] where nothing was found."""
    root = verdict.root
    if root is None:
        return []
    told = tell_stacks(session, verdict, root, source, _MOST_LETTERS)
    return [
        {
            "ranks": list(stack.ranks),
            "what": stack.what,
            "is_cause": stack.is_cause,
            "role": str(stack.role),
            "frames": [
                {"site": str(one.frame), "text": one.text, "notes": list(one.notes)}
                for one in stack.frames
            ],
        }
        for stack in told[:_MOST_STACKS]
    ]
