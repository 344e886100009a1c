"""A condition that some ranks took and others did not, an exit that skips a call.

see whether rank 0 skipped keeper.py:29 by the `return` under `except OSError` (line 26 of keeper.py)

only rank 0 came to metrics.py:23, by `if rank == 0` (line 71 of job.py): all ranks of the group have to make
that call, or none

see whether all ranks decide `if loss < best` (line 35 of fit.py) alike: rank 0 came to sharded.py:36 by it

see whether rank 0 left the loop before that call by the `break` under `if not pending` (line 12 of a.py)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.diagnose.traits import subject_of
from distdbg.diagnose.wording import say_ranks, short_site
from distdbg.record.format import Flag
from distdbg.render.enclosing import Loop, is_in_body, path_to
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import (
    ENDS,
    LOOP,
    RANK,
    UNDER,
    Case,
    are_at_other_lines,
    first_match,
    in_file,
    is_left_out,
    matches,
    place_of_note,
    place_of_stack,
)
from distdbg.render.hints.left_behind import by_left_function
from distdbg.render.loop_exits import ends_early, loop_exits

_SKIPS: Final = re.compile(
    r"a (`(?:return|continue|break)` under .*) \((line \d+)\) skips this call"
)
#: A loop with as many rounds on all ranks.
_FIXED: Final = re.compile(r"`for \w+ in range\([\d, -]+\)`")
_SWALLOWS: Final = re.compile("an error (?:in|caught by) `")
_ELSE: Final = "`else` of "
#: One that holds on all ranks, or on none.
_OF_ALL: Final = re.compile(r"^`if (?:not )?[^`]*\b(?:is_initialized|is_available|world_size)\b")


def by_branch(case: Case) -> str:
    """Ranks are at other lines: an exit skips the call of the others, or one side alone took a condition."""
    mine, others = case.sides()
    if not are_at_other_lines(mine, others):
        return ""
    for stack in others if case.root.ranks else ():
        if found := _exit_before(case, stack, case.root.ranks):
            return f"see whether {case.who} skipped {place_of_stack(stack)} by the {found}"
        if found := first_match(stack, ENDS):
            return f"see whether {case.who} left the loop by the {found}: all ranks have to decide that alike"
    if found := by_left_function(case):
        return found
    if (left := subject_of(case.root.advice)) and (loop := _loop_of(others, left)):
        return f"see whether {loop} makes as many rounds on {case.who} as on the others"
    if found := by_rank_condition(case):
        return found
    for stack, found in _conditions_of_one_side(case):
        return (
            f"see whether all ranks decide {found} alike: {say_ranks(stack.ranks, 3)} came to "
            f"{place_of_stack(stack)} by it"
        )
    return ""


def by_rank_condition(case: Case) -> str:
    """A condition that asks for the rank stands around a call that the other ranks do not make."""
    for stack, found in _conditions_of_one_side(case):
        if _asks_for_rank(found):
            return (
                f"only {say_ranks(stack.ranks, 3)} came to {place_of_stack(stack)}, by {found}: all ranks of "
                "the group have to make that call, or none"
            )
    return ""


def _is_met_by_its_else(case: Case, stack: ReportedStack, found: str) -> bool:
    """Whether others make that op, or the other end of a message, in the `else` of what asks for the rank.

    These calls are meant for each other, and differ in something else.
    """
    if not _asks_for_rank(found):
        return False
    counterpart = found.removeprefix(_ELSE) if found.startswith(_ELSE) else _ELSE + found
    return any(
        _last_op(case, other) == _last_op(case, stack) is not None
        for other in case.reported
        if counterpart in matches(other, UNDER)
    )


def _last_op(case: Case, stack: ReportedStack) -> int | None:
    """Its kind; -1 for both ends of a message."""
    ops = case.session.ranks[stack.ranks[0]].ops
    if not len(ops):
        return None
    return -1 if ops.flags[-1] & Flag.MESSAGE else ops.kind[-1]


def _asks_for_rank(found: str) -> bool:
    """Whether a condition asks for the rank; the name of its file does not count."""
    return RANK.search(found.rpartition(" (line ")[0]) is not None


def _conditions_of_one_side(case: Case) -> Iterator[tuple[ReportedStack, str]]:
    """Those that ranks stand under which are at other lines than the rest; never one of both sides."""
    mine, others = case.sides()
    if not are_at_other_lines(mine, others):
        return
    for side, other in ((mine, others), (others, mine)):
        for stack in side:
            for found in matches(stack, UNDER):
                is_theirs = any(found in matches(one, UNDER) for one in other)
                is_apart = _OF_ALL.search(found) or _is_met_by_its_else(case, stack, found)
                if not (is_theirs or is_apart):
                    yield stack, found


def by_some_alone(case: Case) -> str:
    """What let some ranks alone make a group: an exit of the others, or a condition; by rank first."""
    for stack in case.reported:
        if not stack.frames or "new_group" not in stack.frames[0].text or is_left_out(stack):
            continue
        exits, conditions = [], []
        for one in stack.frames:
            source = case.source.parsed(one.frame.file)
            notes = [
                *one.notes,
                *(loop_exits(source, one.frame.line) if source is not None else ()),
            ]
            for note in dict.fromkeys(notes):
                if found := _SKIPS.match(note):
                    exits.append(f"the others left by the {found[1]} ({in_file(one, found[2])})")
                elif found := UNDER.match(note):
                    conditions.append(f"it stands under {found[1]} ({in_file(one, found[2])})")
        reported = [*exits, *conditions]
        why = next(filter(_asks_for_rank, reported), reported[0] if reported else "")
        return f"{case.root.advice}; {why}" if why else ""
    return ""


def by_same_branch(case: Case) -> str:
    """Ranks all send, or all receive, under a condition that was to part them."""
    if len({one.frames[0].frame[:2] for one in case.reported if one.is_cause and one.frames}) != 1:
        return ""  # each is at a line of its own
    for one in (
        case.reported[0].frames[:1] if case.reported else ()
    ):  # one of a caller may be about anything
        if found := next(filter(None, map(UNDER.fullmatch, one.notes)), None):
            return (
                f"these ranks took the same branch, under {found[1]} ({in_file(one, found[2])}): it has to "
                "part the two sides of each exchange"
            )
    return ""


def by_skipped_round(case: Case) -> str:
    """Ranks are at one line with other arrays: an exit skips that line in a round of its loop."""
    found = first_match(case.reported[0], _SKIPS) if case.reported else ""
    return f"see whether {case.who} skipped a round by the {found}" if found else ""


def by_rounds(case: Case) -> str:
    """In a deadlock one rank is in a loop that the other, further down in that function, has left."""
    reported = [one for one in case.reported if one.is_cause and not is_left_out(one)]
    for mine in reported:
        for other in reported:
            for one in mine.frames:
                beyond = next((o for o in other.frames if _is_of(o, one)), None)
                if beyond is None or beyond.frame.line == one.frame.line:
                    continue
                if _are_in_two_branches(case, one, beyond):
                    continue  # it never was in that loop
                for loop in (n for n in one.notes if LOOP.fullmatch(n)):
                    found = LOOP.fullmatch(loop)
                    if found and loop not in beyond.notes and one.frame.line < beyond.frame.line:
                        values = _values_in(case, found[1], ((mine, one), (other, beyond)))
                        who = say_ranks(other.ranks, 3)
                        rounds = (
                            f"see whether {found[1]} ({in_file(one, found[2])}) makes as many rounds on "
                            f"{who}, which left it, as on {say_ranks(mine.ranks, 3)}{values}"
                        )
                        skips = None if values else _continue_in(case, one, beyond)
                        if skips is None:
                            return rounds
                        way, is_fixed = skips
                        place = short_site(str(one.frame)).partition(" (")[0]
                        if is_fixed:
                            return f"see whether {who} skipped {place} by the {way}"
                        return f"{rounds}, or skips {place} by the {way}"
    return ""


def _continue_in(case: Case, one: ReportedFrame, beyond: ReportedFrame) -> tuple[str, bool] | None:
    """A `continue` that skips the call in a loop that `beyond` has left, and whether all make its rounds."""
    source = case.source.parsed(one.frame.file)
    notes = (LOOP.fullmatch(note) for note in one.notes if note not in beyond.notes)
    loops = {_line_of(found[2]): found[1] for found in notes if found}
    if source is None:
        return None
    for note in loop_exits(source, one.frame.line):
        found = _SKIPS.fullmatch(note)
        if found is None or not found[1].startswith("`continue`"):
            continue
        around = [line for line in loops if line < _line_of(found[2])]
        if around:
            loop = max(around)
            is_fixed = _FIXED.fullmatch(loops[loop]) is not None and not ends_early(source, loop)
            return f"{found[1]} ({in_file(one, found[2])})", is_fixed
    return None


def _line_of(text: str) -> int:
    return int(text.removeprefix("line "))


def _are_in_two_branches(case: Case, one: ReportedFrame, other: ReportedFrame) -> bool:
    """Whether two lines of a function stand in the two branches of one `if`."""
    source = case.source.parsed(one.frame.file)
    if source is None:
        return False
    lines = one.frame.line, other.frame.line
    shared = [node for node in path_to(source.tree, lines[0]) if isinstance(node, ast.If)]
    beyond = path_to(source.tree, lines[1])
    return any(
        block in beyond and is_in_body(block, lines[0]) is not is_in_body(block, lines[1])
        for block in shared
    )


def _values_in(case: Case, text: str, sides: Sequence[tuple[ReportedStack, ReportedFrame]]) -> str:
    """': cfg.accumulate is 8 on rank 1 and 4 on rank 2', of a name in the text that differs; ''."""
    values = [
        case.session.ranks[stack.ranks[0]].left_values.get(one.frame[:2], {})
        for stack, one in sides
    ]
    head = text.rpartition(" in ")[2] if text.startswith("`for ") else text
    for name, value in values[0].items():
        other = values[1].get(name, value)
        if value != other and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", head):
            (mine, _), (theirs, _) = sides
            return (
                f": {name} is {value.removeprefix('= ')} on {say_ranks(mine.ranks, 3)} and "
                f"{other.removeprefix('= ')} on {say_ranks(theirs.ranks, 3)}"
            )
    return ""


def _is_of(one: ReportedFrame, other: ReportedFrame) -> bool:
    mine, theirs = one.frame, other.frame
    return (mine.file, mine.function) == (theirs.file, theirs.function)


def by_exit(case: Case) -> str:
    """A rank did not make a call: an exit skips it, an error was swallowed, or a condition did not hold."""
    for stack in filter(is_left_out, case.reported):
        who = say_ranks(stack.ranks, 3)
        if found := _exit_before(case, stack, stack.ranks):
            return f"see whether {who} skipped {place_of_stack(stack)} by the {found}"
        if found := _swallowed(stack):
            place = place_of_stack(stack)
            return f"see whether {who} had an error before {place} that was swallowed: {found}"
        if found := first_match(stack, ENDS):
            return f"see whether {who} left the loop before that call by the {found}"
        # A condition that asks for the rank held for the calls before, and holds for this one.
        if found := next((one for one in matches(stack, UNDER) if not _asks_for_rank(one)), ""):
            place = place_of_note(stack, UNDER)
            return f"see whether {who} skipped {place}, which stands under {found}"
    return ""


def _exit_before(case: Case, stack: ReportedStack, ranks: Sequence[int]) -> str:
    """The innermost exit by which ranks may have skipped a call: none that they have passed since."""
    mine = [one for one in case.reported if set(one.ranks) & set(ranks) and not is_left_out(one)]
    for one in stack.frames:
        for note in one.notes:
            found = _SKIPS.fullmatch(note)
            if found and not any(_has_passed(case, here, one, found[2]) for here in mine):
                return f"{found[1]} ({in_file(one, found[2])})"
    return ""


def _has_passed(case: Case, stack: ReportedStack, skipped: ReportedFrame, exit_line: str) -> bool:
    """Whether ranks are behind an exit in its function, and no loop has brought them there before."""
    line = _line_of(exit_line)
    if any(LOOP.fullmatch(note) for one in stack.frames for note in one.notes):
        return False
    for one in stack.frames:
        is_same = (one.frame.file, one.frame.function) == (
            skipped.frame.file,
            skipped.frame.function,
        )
        source = case.source.parsed(one.frame.file) if is_same else None
        if source is None or one.frame.line <= line:
            continue
        is_in_it = any(
            getattr(node, "lineno", 0) == line for node in path_to(source.tree, one.frame.line)
        )
        is_repeated = any(isinstance(node, Loop) for node in path_to(source.tree, line))
        if not (is_in_it or is_repeated):
            return True
    return False


def _loop_of(stacks: Sequence[ReportedStack], function: str) -> str:
    """'`for x in xs` (line 55 of a.py)': the loop of a function that is on these stacks; ''."""
    for one in (frame for stack in stacks for frame in stack.frames):
        for note in one.notes if one.frame.function.rpartition(".")[2] == function else ():
            if found := LOOP.fullmatch(note):
                return f"{found[1]} ({in_file(one, found[2])})"
    return ""


def _swallowed(stack: ReportedStack) -> str:
    """'an error in `with timer` (line 42) skips that call where ... is true'; ''."""
    notes = (note for one in stack.frames for note in one.notes)
    found = next((note for note in notes if _SWALLOWS.match(note)), "")
    return found.replace(" skips this call", " skips that call")
