"""The stacks that explain a finding, with their source: those of the cause first, then of those that wait.

Terminal, page and JSON show the same. Files that may not be read have no text and no notes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from distdbg.diagnose.finding import Finding, FindingKind, Role, Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import StackRole
from distdbg.diagnose.wording import say_ranks
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.values import KEYS_OF
from distdbg.render.enclosing import (
    Function,
    Loop,
    ParsedSource,
    bound_before,
    line_text,
    lines_of_attribute,
    path_to,
)
from distdbg.render.loop_exits import loop_exits
from distdbg.render.notes import LEFT_OUT, NoteRequest, wanted_of_cause, wanted_of_others
from distdbg.render.source_line import SourceLines
from distdbg.render.stacks import FoldedStack, fold_stacks, other_threads, own_frames
from distdbg.render.where import place_of

_Sides = tuple[tuple[int, ...], ...]
_MAX_PARTED: Final = 3


_MAX_NAMES: Final = 5
_MAX_SIDES: Final = 3
_MAX_LOST: Final = 2
#: What a loop goes over, or takes: that matters where a line fails with it.
_ARRAY: Final = re.compile(r"\w+\[")


_ATTRIBUTE: Final = re.compile(r"self\.(\w+)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: Lines that set it; of more, no one is the reason.
_LIMIT: Final = 2


#: What is said of another thread of a rank that waits for a lock.
_THREAD: Final = NoteRequest(origin=False)
#: Stacks of a document for programs, and of those the ones whose source is looked at.
_MAX_STACKS: Final = 4
_MAX_LETTERS: Final = 160
#: Frames of a stack of which the values of variables are told.
_MAX_VALUED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFrame:
    """One line of a stack."""

    frame: RecordedFrame
    text: str
    """Its source; '' where there is none to be shown."""
    notes: tuple[str, ...] = ()
    """What stands around it: 'in `for batch in loader` (line 12)'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStack:
    """One stack and who has it."""

    ranks: tuple[int, ...]
    what: str
    is_cause: bool
    frames: tuple[ReportedFrame, ...]
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
) -> list[ReportedStack]:
    """`is_whole`: with the frames of libraries and of what started the program."""
    victims = root.victims or [r for r, role in verdict.roles.items() if role is Role.VICTIM]
    cause = fold_stacks(session, root.ranks)
    at_cause = [one.frames for one in cause]
    noted, sides = wanted_of_cause(session, root), sides_of(session, root)
    reported: list[tuple[FoldedStack, NoteRequest | None]] = [
        (one, LEFT_OUT) for one in _left_out(session, root)
    ]
    reported += [(one, noted) for one in cause]
    reported += [
        (one, _THREAD) for rank in root.ranks for one in other_threads(session, root, rank)
    ]
    count = len(reported)
    reported += [
        (one, wanted_of_others(session, root, one.frames, at_cause))
        for one in fold_stacks(session, set(victims) - set(root.ranks))
    ]
    return [
        ReportedStack(
            ranks=one.ranks,
            what=one.what,
            is_cause=at < count,
            role=one.role,
            frames=tuple(
                _frames(
                    session,
                    one,
                    wanted if at < _MAX_STACKS else None,
                    source,
                    letters,
                    is_whole=is_whole,
                    is_raised=root.kind is FindingKind.DEAD_RANK and at < count,
                    sides=sides if at == 0 else (),
                )
            ),
        )
        for at, (one, wanted) in enumerate(reported)
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
        elif fact.is_for_others and fact.op is not None and len(fact.ranks) > 1:
            ops = session.ranks[fact.op.rank].ops
            what = f"called {session.kind_of(fact.op)} for other ranks than {fact.ranks[1]} here"
            frames = session.stacks[ops.stack[fact.op.at]]
            yield FoldedStack(
                ranks=fact.ranks[:1], what=what, frames=frames, role=StackRole.OTHER_PEERS
            )
        elif fact.is_left_out and fact.op is not None:
            ops = session.ranks[fact.op.rank].ops
            what = f"did not call {session.kind_of(fact.op)}"
            what += (
                " here"
                if fact.op.rank in fact.ranks
                else f", which rank {fact.op.rank} called here"
            )
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
    sides: _Sides,
) -> Iterator[ReportedFrame]:
    frames = stack.frames if is_whole else own_frames(stack.frames)
    at = 0
    for _, alike in groupby(frames, lambda frame: (frame.file, frame.line)):
        *inner, frame = alike  # a comprehension, and the function that it stands in
        count = len(inner) + 1
        # To the call itself it came: what stands around those of its callers skips nothing.
        is_reached = stack.role is StackRole.OTHER_PEERS and at > 0
        is_noted = wanted is not None and not is_reached
        notes = tuple(source.notes_of(frames, at, wanted)) if wanted and is_noted else ()
        parsed = source.parsed(frame.file) if at < _MAX_VALUED else None
        if parsed is not None:
            of_line = is_raised and not at
            values = say_left_values(session, stack.ranks, frame, parsed, of_line=of_line)
            notes = (*notes, values) if values else notes
        if at < _MAX_VALUED:
            parting = parting_values(session, sides, frame, notes)
            notes = (*notes, *parting)
            if parsed is not None:
                notes = (*notes, *(n for one in parting for n in set_at(parsed, frame.line, one)))
        if frame in inner:
            notes = (*notes, "called by itself, again and again")
        at += count
        yield ReportedFrame(frame=frame, text=source.text_of(frame, letters), notes=notes)


def to_plain_stacks(
    session: Session, verdict: Verdict, source: SourceLines
) -> list[dict[str, Any]]:
    """Turn stacks into plain values for JSON; [] where nothing was found."""
    root = verdict.root
    if root is None:
        return []
    reported = tell_stacks(session, verdict, root, source, _MAX_LETTERS)
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
        for stack in reported[:_MAX_STACKS]
    ]


def set_at(source: ParsedSource, line: int, variable: str) -> list[str]:
    """Tell what sets `self.turn`, `config["bucket_kb"]` or `steps` as seen at a line; [] where unknown."""
    if found := _ATTRIBUTE.match(variable):
        name, lines = found[0], lines_of_attribute(source, line, found[1])
    elif found := _NAME.match(variable):
        name, lines = found[0], bound_before(source, line, found[0])
    else:
        return []
    if not 0 < len(lines) <= _LIMIT:
        return []
    places = " and ".join(f"`{line_text(source, at)}` (line {at})" for at in lines)
    reported = [f"{name} is set by {places}"]
    exits = loop_exits(source, lines[0]) if len(lines) == 1 else []
    return reported + [
        one.replace(" skips this call", " skips that") for one in exits if " skips " in one
    ]


def say_left_values(
    session: Session,
    ranks: Sequence[int],
    frame: RecordedFrame,
    source: ParsedSource,
    *,
    of_line: bool,
) -> str:
    """'step = 14, batches = 15'; '' where nothing is known, or the line uses no variable."""
    known = {
        rank: values
        for rank in ranks
        if (values := session.ranks[rank].left_values.get((frame.file, frame.line)))
    }
    if not known:
        return ""
    names = names_around(source, frame.line, of_line=of_line)
    # What is not a number is news wherever it stands.
    lost = (name for values in known.values() for name, text in values.items() if text == "= nan")
    names = [*dict.fromkeys((*names, *islice(lost, _MAX_LOST)))]
    said = [text for name in names if (text := _say(name, known, len(ranks), of_line=of_line))]
    return ", ".join(said[:_MAX_NAMES])


def _say(name: str, known: Mapping[int, Mapping[str, str]], count: int, *, of_line: bool) -> str:
    sides: dict[str, list[int]] = {}
    for rank, values in known.items():
        if name in values and (of_line or not _ARRAY.match(values[name])):
            sides.setdefault(values[name], []).append(rank)
    is_own_number = all(text == f"= {rank}" for text, ranks in sides.items() for rank in ranks)
    if len(sides) > _MAX_SIDES or is_own_number:
        return ""
    if len(sides) == 1 and sum(map(len, sides.values())) == count:
        return f"{name} {next(iter(sides))}"
    return "; ".join(f"{name} {text} on {say_ranks(ranks)}" for text, ranks in sides.items())


def names_around(source: ParsedSource, line: int, *, of_line: bool) -> list[str]:
    """List the names in the loops and conditions around a line, and in the line if asked: 'n', 'self.n'."""
    path = path_to(source.tree, line)
    start = max((at for at, node in enumerate(path) if isinstance(node, Function)), default=-1)
    inner = path[-1]
    heads: list[ast.AST] = []
    if of_line and not isinstance(inner, ast.If | Loop | Function | ast.Module):
        heads.append(inner)
    for node in reversed(path[start + 1 :]):
        match node:
            case ast.If(test=test) | ast.While(test=test):
                heads.append(test)
            case ast.For(target=target, iter=of) | ast.AsyncFor(target=target, iter=of):
                heads += [target, of]
    return list(dict.fromkeys(name for head in heads for name in _names(head)))


def _names(node: ast.AST) -> Iterator[str]:
    left = [node]
    while left:  # no recursion: an expression may be nested deeply
        one = left.pop()
        match one:
            case ast.Attribute(value=ast.Name(id=of), attr=name):
                yield f"{of}.{name}"
                if of == "self":
                    continue
            case ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str(key))):
                yield f'{of}["{key}"]'
                continue
            case ast.Name(id=name):
                yield name
            case ast.Lambda():
                continue
        left += [*ast.iter_child_nodes(one)][::-1]


def sides_of(session: Session, root: Finding) -> _Sides:
    """The ranks of a mismatch by what they called; () where too few are known to compare them."""
    if root.kind is not FindingKind.MISMATCH:
        return ()
    ranks = sorted({*root.ranks, *root.victims})
    if root.ranks and root.victims:
        sides: _Sides = (root.ranks, tuple(r for r in ranks if r not in root.ranks))
    else:
        by_form: dict[int, list[int]] = {}
        for rank in ranks:
            place = place_of(session, rank)
            if place is None:
                return ()
            by_form.setdefault(session.ranks[rank].ops.form[place.op.at], []).append(rank)
        sides = tuple(map(tuple, by_form.values()))
    is_reported = 1 < len(sides) <= _MAX_SIDES and any(len(side) > 1 for side in sides)
    return sides if is_reported else ()


def parting_values(
    session: Session, sides: _Sides, frame: RecordedFrame, said: Collection[str]
) -> list[str]:
    """Tell the values that differ at one line that all have reached; `said`: what is told of it already.

    What each rank has of its own (its number, its loss) differs within a side as well, and is not told.
    """
    known = [_common(session, side, frame) for side in sides]
    if not known or not all(known):
        return []
    names = [
        name
        for name, text in known[0].items()
        if all(name in one for one in known)
        and len({one[name] for one in known}) == len(known)
        and not _ARRAY.match(text)
    ]
    # An order before numbers, and these before lengths.
    names.sort(key=lambda name: (not name.startswith(KEYS_OF), not known[0][name].startswith("= ")))
    reported = (
        _say_keys(name.removeprefix(KEYS_OF), [one[name] for one in known], sides)
        if name.startswith(KEYS_OF)
        else "; ".join(
            f"{name} {one[name]} on {say_ranks(side)}"
            for one, side in zip(known, sides, strict=True)
        )
        for name in names
    )
    return [text for text in reported if not any(text in one for one in said)][:_MAX_PARTED]


def _say_keys(name: str, orders: Sequence[str], sides: _Sides) -> str:
    """'params has its keys in another order on rank 0 than on ranks 1-3', or 'params has other keys ...'."""
    are_alike = len({text.rpartition(" of ")[2] for text in orders}) == 1
    how = "its keys in another order" if are_alike else "other keys"
    return f"{name} has {how} on {say_ranks(sides[0])} than on {say_ranks(sides[1])}"


def _common(session: Session, ranks: Iterable[int], frame: RecordedFrame) -> dict[str, str]:
    """What is the same on all of these ranks."""
    each = [session.ranks[rank].left_values.get((frame.file, frame.line), {}) for rank in ranks]
    return {name: text for name, text in each[0].items() if all(o.get(name) == text for o in each)}
