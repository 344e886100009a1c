"""Hints that only the source gives: the records show that a rank stopped, its loop shows by which condition.

see whether rank 2 left the loop by the `break` under `if patience.exhausted(loss)` (line 59): all ranks
have to decide that alike

`if not work.is_completed()` (line 21) depends on time: ranks start different numbers of ops by it; wait()
is the same on all

see whether `while True` (line 38) ends on rank 2

see whether rank 0 skipped keeper.py:29 by the `return` under `except OSError` (line 26)

see whether all ranks decide `if rank == 0` (line 35 of denoise.py) alike: rank 0 came to sharded.py:36 by it
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.find.deadlock import MESSAGES
from distdbg.diagnose.find.one_more_call import ONE_MORE
from distdbg.diagnose.find.parted import NAME_STEPS
from distdbg.diagnose.finding import Finding, Kind, Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks, short_site
from distdbg.record.entries import Frame
from distdbg.render.enclosing import imported_beside, timers_in
from distdbg.render.loop_exits import retry_around
from distdbg.render.source_line import SourceLines
from distdbg.render.told_stacks import ToldStack, tell_stacks

#: As `loop_exits` and `enclosing` say it: what ends the loop early tells more than its head.
_WAYS: Final = (
    (
        re.compile(r"a (`continue` under .*) skips this call"),
        "see whether {who} skipped the call by the {way}",
    ),
    (
        re.compile(r"a (`(?:break|return)` under .*) ends the loop \(line \d+\)"),
        "see whether {who} left the loop by the {way}: all ranks have to decide that alike",
    ),
    (
        re.compile(r"in (`(?:for|while) .*` \(line \d+\))"),
        "see whether {way} makes as many rounds on {who} as on the others",
    ),
)

#: Hints of who knows the records alone, of ranks that are at other lines.
_GENERAL: Final = re.compile("^a branch|may depend on its own data|made one call fewer")
_SKIPS: Final = re.compile(
    r"a (`(?:return|continue|break)` under .*) \((line \d+)\) skips this call"
)
_ENDS: Final = re.compile(
    r"a (`(?:return|break)` under .*) \((line \d+)\) ends the loop \(line \d+\)"
)
_SWALLOWS: Final = re.compile("an error (?:in|caught by) `")
#: A condition that is meant for some ranks.
_OF_RANK: Final = re.compile(
    r"(?<![a-z_])(?:(?:get|local|global|node|world|group|my)_)?rank\b", re.IGNORECASE
)
#: A hint at arrays that differ in size; and a number that differs just so.
_SIZES: Final = re.compile(
    "^see what sets the size|^arrays of several sizes|^see where src or dst comes from"
)
_PARTED: Final = re.compile(r"(\S+) = \S+ on ranks? [\d,-]+(?:; \1 = \S+ on ranks? [\d,-]+)+")
_SKIPS_THAT: Final = re.compile(r"(a `\w+` under .* \(line \d+)\) skips that")
_NUMBERS: Final = re.compile(r"(?:^|, )([A-Za-z_]\w*) = (-?\d+)(?=,|$)")
#: As `parting_values` says it.
_KEYS: Final = re.compile(r"(\S+) (has (?:its keys in another order|other keys) on .*)")
#: What makes an array of a list that is a variable.
_MADE_OF: Final = re.compile(r"\bnp\.(?:array|asarray|stack|concatenate)\((\w+)\)")
#: A finding about a loop that some ranks left before the others.
_LEFT: Final = re.compile(r" left (?:\w+\.)*(\w+)\(\) ")
_LOOP: Final = re.compile(r"in (`(?:for|while) .*`) \((line \d+)\)")
_UNDER: Final = re.compile(r"under (.*`) \((line \d+)\)")
#: A condition that no two ranks see alike, around a call that all have to make.
_BY_TIME: Final = (
    re.compile(r".*under (`[^`]*\.is_(?:completed|success)\(\)[^`]*` \(line \d+\)).*"),
    "{way} depends on time: ranks start different numbers of ops by it; wait() is the same on all",
)
_CACHED: Final = (
    re.compile(r"(`@.*` \(line \d+\)) skips this call for arguments that it knows"),
    "{way} decides which ranks make the ops in that function: call it on all ranks, or on none",
)
#: Kinds of ranks that others wait for.
_WAITED_FOR: Final = (Kind.MISSING_RANK, Kind.STUCK_RANK, Kind.STALL, Kind.STOPPED)
_SHORT: Final = (
    re.compile(r"behind (`(?:or|and)` in `.*` \(line \d+\))"),
    "a call behind {way} is left out where the part before it decides: all ranks have to make it",
)
_ENDLESS: Final = (
    re.compile(r"in (`while .*` \(line \d+\))"),
    "see whether {way} ends on {who}; if it was at work, take its stacks twice (distdbg stacks)",
)
_FILE: Final = (
    re.compile(r"in (`while not .*\b(?:exists|is_file|isfile|is_dir|isdir)\(.*` \(line \d+\))"),
    "{way} waits for a file: see who has to make it (another rank, another job), and whether it did",
)
#: Of ranks that made one call more than the others.
_HOLDS_MORE: Final = (
    re.compile(r"under (`.*` \(line \d+\))"),
    "see whether {way} holds once more on {who} than on the others; results since then are of calls that do "
    "not belong together",
)
_ROUND_MORE: Final = (
    re.compile(r"in (`(?:for|while) .*` \(line \d+\))"),
    "see whether {way} makes one round more on {who} than on the others; results since then are of calls "
    "that do not belong together",
)
#: What the rank was killed by; no note of its stack says more.
_OF_TIMER: Final = re.compile(r"was killed by SIG(?:ALRM|VTALRM|PROF)\b")
_TIMER: Final = (_OF_TIMER, "")
_MOST_TIMERS: Final = 3
_WITH: Final = re.compile(r"in `(with .*)` \((line \d+)\)")


def with_source_hint(session: Session, verdict: Verdict, source: SourceLines) -> Verdict:
    """The same with the better hint, where the records alone know none."""
    root = verdict.root
    ways = () if root is None else _ways(root)
    if root is None or not (ways or root.advice == MESSAGES):
        return verdict
    told = tell_stacks(session, verdict, root, source, letters=80)
    # What skips a call of the others may be what is wrong with all.
    known = [stack for stack in told if stack.is_cause or _SHORT in ways]
    notes = [note for stack in known for one in stack.frames for note in one.notes]
    who = say_ranks(root.ranks, 3)
    if len({note for note in notes if _LOOP.fullmatch(note)}) > 1:  # any of them may be the one
        ways = tuple(way for way in ways if way is not _ROUND_MORE)
    advice = next(filter(None, (_advice(way, notes, who) for way in ways)), "")
    if not advice and root.kind is Kind.DEAD_RANK:
        advice = _by_timer(told, root, source)
    if not advice and ways == (_FILE,):
        advice = _by_own_lock(known, who)
    if root.kind is Kind.MISMATCH:  # it may look like any of the others
        advice = _by_retry(told, root, source) or advice
        advice = advice or _by_keys(told) or _by_empty(session, told, root)
        advice = advice or _by_round(told, root)
    if not advice and root.kind is Kind.DEADLOCK and root.advice == MESSAGES:
        advice = _by_same_branch(told)
    if not advice and root.kind in (Kind.MISMATCH, Kind.DEADLOCK):
        advice = _by_exit(told)
    if not advice and root.kind is Kind.MISMATCH and _SIZES.search(root.advice):
        advice = _by_values(told)
    if not advice and root.kind is Kind.MISMATCH and _GENERAL.search(root.advice):
        advice = _by_branch(told, root.ranks, root.what)
    if not advice:
        return verdict
    better = replace(root, advice=advice)
    return replace(
        verdict,
        root=better,
        findings=tuple(better if one is root else one for one in verdict.findings),
    )


def _by_branch(told: Sequence[ToldStack], odd: Sequence[int], what: str) -> str:
    """By what the ranks came to other calls: an exit that skips the call of the others, or a condition."""
    stacks = [stack for stack in told if stack.frames and not stack.what.startswith("did not call")]
    if len({stack.frames[0].frame[:2] for stack in stacks}) < 2:
        return ""  # all are at one line
    mine = [stack for stack in stacks if set(stack.ranks) <= set(odd)]
    others = [stack for stack in stacks if stack not in mine]
    for stack in others if odd else ():
        if found := _first_note(stack, _SKIPS):
            return f"see whether {say_ranks(odd, 3)} skipped {_site(stack)} by the {found}"
        if found := _first_note(stack, _ENDS):
            return (
                f"see whether {say_ranks(odd, 3)} left the loop by the {found}: all ranks have to "
                "decide that alike"
            )
    if (left := _LEFT.search(what)) and (loop := _loop_of(others, left[1])):
        return f"see whether {loop} makes as many rounds on {say_ranks(odd, 3)} as on the others"
    for stack in [*mine, *others]:
        if found := _first_note(stack, _UNDER):
            if _OF_RANK.search(found.rpartition(" (line ")[0]):  # not in the name of the file
                return (
                    f"only {say_ranks(stack.ranks, 3)} came to {_site(stack)}, by {found}: all ranks of the "
                    "group have to make that call, or none"
                )
            return (
                f"see whether all ranks decide {found} alike: {say_ranks(stack.ranks, 3)} came to "
                f"{_site(stack)} by it"
            )
    return ""


def _by_retry(told: Sequence[ToldStack], root: Finding, source: SourceLines) -> str:
    """Of ranks that are in a loop which calls again after an error, while the others are not in it."""
    stacks = [stack for stack in told if not stack.what.startswith("did not call")]
    mine = [stack for stack in stacks if set(stack.ranks) <= set(root.ranks)]
    others = [stack for stack in stacks if stack not in mine]
    passed = {_retries(stack, source) for stack in others}
    for stack in mine if others else ():
        for retry in _retries(stack, source):
            if not any(retry in each for each in passed):
                who = say_ranks(stack.ranks, 3)
                return (
                    f"see whether {who} repeats its calls by the retry {retry}, after an error that the "
                    "other ranks did not have: a retry must not make collectives"
                )
    return ""


def _retries(stack: ToldStack, source: SourceLines) -> tuple[str, ...]:
    """'`for attempt in range(3)` (line 13 of retry.py)', the innermost first."""
    found = []
    for one in stack.frames:
        parsed = source.parsed(one.frame.file)
        if parsed is not None and (loop := retry_around(parsed, one.frame.line)):
            found.append(f"{loop.removesuffix(')')} of {os.path.basename(one.frame.file)})")
    return tuple(found)


def _by_timer(told: Sequence[ToldStack], root: Finding, source: SourceLines) -> str:
    """Of a rank that a timer of its own has killed: where its files set one."""
    files = {one.frame.file: None for stack in told[:1] for one in stack.frames}
    for file in [*files]:
        if (parsed := source.parsed(file)) is not None:
            files |= dict.fromkeys(imported_beside(parsed, file))
    set_at = [
        f"{os.path.basename(file)}:{line}"
        for file in files
        if (parsed := source.parsed(file)) is not None
        for line in timers_in(parsed)
    ]
    if not 0 < len(set_at) <= _MOST_TIMERS:
        return ""
    return f"its timer is set at {' and '.join(set_at)}: see on which path it is not cancelled"


def _by_own_lock(told: Sequence[ToldStack], who: str) -> str:
    """Of a rank that waits for a lock at a `with` which stands around its own callers as well.

    Only in one file, and of `self` in one class: elsewhere the same words are another lock.
    """
    for stack in told:
        if not stack.frames or "lock" not in stack.what:
            continue
        first, *outer = stack.frames
        wanted = first.text.removesuffix(":")
        for one in outer:
            for note in one.notes:
                found = _WITH.fullmatch(note)
                if found and found[1] == wanted and _are_of_one_class(first.frame, one.frame):
                    return (
                        f"see whether {who} holds that lock itself, by `{wanted}` ({found[2]} of "
                        f"{os.path.basename(one.frame.file)}): take an RLock, or lock once"
                    )
    return ""


def _are_of_one_class(one: Frame, other: Frame) -> bool:
    classes = [frame.function.rpartition(".")[0] for frame in (one, other)]
    return one.file == other.file and classes[0] == classes[1]


def _by_exit(told: Sequence[ToldStack]) -> str:
    """By what skips a call that a rank did not make, or by the condition that it stands under."""
    for stack in told:
        if not stack.what.startswith("did not call"):
            continue
        who = say_ranks(stack.ranks, 3)
        if found := _first_note(stack, _SKIPS):
            return f"see whether {who} skipped {_site(stack)} by the {found}"
        if found := _swallowed(stack):
            return (
                f"see whether {who} had an error before {_site(stack)} that was swallowed: {found}"
            )
        if found := _first_note(stack, _UNDER):
            return f"see whether {who} skipped {_site(stack)}, which stands under {found}"
    return ""


def _by_values(told: Sequence[ToldStack]) -> str:
    """By a number that differs as the calls do, of the outermost caller that has one."""
    for one in reversed(told[0].frames if told else ()):
        for note in one.notes:
            if found := _PARTED.fullmatch(note):
                values = note.replace(f"{found[1]} = ", "").replace("; ", " and ")
                skip = next(filter(None, map(_SKIPS_THAT.fullmatch, one.notes)), None)
                if skip:
                    file = os.path.basename(one.frame.file)
                    return f"see why {found[1]} is {values}: {skip[1]} of {file}) skips that line"
                return f"see why {found[1]} is {values} (at {short_site(str(one.frame))})"
    return ""


def _by_keys(told: Sequence[ToldStack]) -> str:
    """By a dict or a set that ranks go over in different orders, of the outermost caller that has it."""
    for one in reversed(told[0].frames if told else ()):
        for at, note in enumerate(one.notes):
            if found := _KEYS.match(note):
                file, name = os.path.basename(one.frame.file), found[1]
                made = next((n for n in one.notes[at:] if n.startswith(f"{name} is set by ")), "")
                where = f": {made} of {file}" if made else f" ({short_site(str(one.frame))})"
                return f"see where {name} gets its keys{where}; it {found[2]}"
    return ""


def _by_empty(session: Session, told: Sequence[ToldStack], root: Finding) -> str:
    """Of arrays that differ in dtype: NumPy makes float64 of an empty list."""
    if "get their dtype" not in root.advice or len(root.ranks) != 1:
        return ""
    values = session.ranks[root.ranks[0]].left_values
    for one in told[0].frames if told else ():
        for found in _MADE_OF.finditer(one.text):
            if values.get((one.frame.file, one.frame.line), {}).get(found[1]) == "is 0 long":
                return (
                    f"{found[1]} is empty on {say_ranks(root.ranks)}, and an array of nothing is float64: "
                    f"say the dtype at {short_site(str(one.frame)).partition(' (')[0]}"
                )
    return ""


def _by_round(told: Sequence[ToldStack], root: Finding) -> str:
    """By a number of the loop that all are in, which is another one on the ranks of the cause."""
    mine = next((one for one in told if set(one.ranks) <= set(root.ranks)), None)
    other = next((one for one in told if not set(one.ranks) & set(root.ranks)), None)
    if mine is None or other is None:
        return ""
    theirs = {(loop, name): value for _, loop, name, value in _rounds(other)}
    for file, loop, name, value in _rounds(mine):
        there = theirs.get((loop, name), value)
        if there != value:
            return (
                f"see where {name} starts: in {loop} of {file}) it is {value} on "
                f"{say_ranks(mine.ranks, 3)} and {there} on {say_ranks(other.ranks, 3)}"
            )
    return ""


def _rounds(stack: ToldStack) -> Iterator[tuple[str, str, str, str]]:
    """File, '`while step < last` (line 49', name and value of each number in the head of a loop."""
    for one in stack.frames:
        loops = [found for note in one.notes if (found := _LOOP.fullmatch(note))]
        for loop in loops:
            for note in one.notes:
                for name, value in _NUMBERS.findall(note):
                    if re.search(rf"\b{re.escape(name)}\b", loop[1]):
                        yield os.path.basename(one.frame.file), f"{loop[1]} ({loop[2]}", name, value


def _by_same_branch(told: Sequence[ToldStack]) -> str:
    """Of ranks that all send, or all receive, under a condition that was to part them."""
    for one in told[0].frames[:1] if told else ():  # one of a caller may be about anything
        if found := next(filter(None, map(_UNDER.fullmatch, one.notes)), None):
            return (
                f"these ranks took the same branch, under {found[1]} ({found[2]} of "
                f"{os.path.basename(one.frame.file)}): it has to part the two sides of each exchange"
            )
    return ""


def _loop_of(stacks: Sequence[ToldStack], function: str) -> str:
    """'`for x in xs` (line 55 of a.py)': the loop of a function that is on these stacks; ''."""
    for one in (frame for stack in stacks for frame in stack.frames):
        for note in one.notes if one.frame.function.rpartition(".")[2] == function else ():
            if found := _LOOP.fullmatch(note):
                return f"{found[1]} ({found[2]} of {os.path.basename(one.frame.file)})"
    return ""


def _first_note(stack: ToldStack, pattern: re.Pattern[str]) -> str:
    """Of the innermost frame that has one, with its file; ''."""
    for one in stack.frames:
        for note in one.notes:
            if found := pattern.fullmatch(note):
                return f"{found[1]} ({found[2]} of {os.path.basename(one.frame.file)})"
    return ""


def _swallowed(stack: ToldStack) -> str:
    """'an error in `with timer` (line 42) skips that call where ... is true'; ''."""
    notes = (note for one in stack.frames for note in one.notes)
    found = next((note for note in notes if _SWALLOWS.match(note)), "")
    return found.replace(" skips this call", " skips that call")


def _site(stack: ToldStack) -> str:
    return short_site(str(stack.frames[0].frame)).partition(" (")[0]


def _ways(root: Finding) -> tuple[tuple[re.Pattern[str], str], ...]:
    """In which the source may give a better hint than the records."""
    if root.advice == NAME_STEPS:
        return _WAYS
    if root.kind is Kind.MISMATCH and root.advice.startswith(ONE_MORE):
        return (_HOLDS_MORE, _ROUND_MORE)
    if root.kind is Kind.MISMATCH:
        return (_BY_TIME, _CACHED, _SHORT)
    if root.kind is Kind.DEADLOCK:
        return (_SHORT,)
    if root.kind in _WAITED_FOR and re.search("asleep|for a lock", root.what):
        return (_FILE,)
    if root.kind is Kind.DEAD_RANK and _OF_TIMER.search(root.what):
        return (_TIMER,)
    is_busy = root.kind in (Kind.MISSING_RANK, Kind.STUCK_RANK) and "busy in " in root.what
    return (_ENDLESS,) if is_busy else ()


def _advice(way: tuple[re.Pattern[str], str], notes: Sequence[str], who: str) -> str:
    pattern, text = way
    found = next((match for note in notes if (match := pattern.fullmatch(note))), None)
    return text.format(who=who, way=found[1]) if found else ""
