"""A variable that differs between ranks as their calls do, and where it gets its value.

see why config["bucket_kb"] is 128 on ranks 0-1 and 96 on ranks 2-3 (at train.py:31)

see where step starts: in `while step < last` (line 49 of job.py) it is 300 on rank 2 and 400 on ranks 0-1,3

scores is empty on rank 3, and an array of nothing is float64: say the dtype at job.py:38
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.wording import say_ranks, short_site
from distdbg.render.enclosing import bound_at, line_text, path_to
from distdbg.render.finding_stacks import ReportedStack
from distdbg.render.hints.case import LOOP, RANK, Case, are_at_other_lines, in_file

_PARTED: Final = re.compile(r"(\S+) = \S+ on ranks? [\d,-]+(?:; \1 = \S+ on ranks? [\d,-]+)+")
_SKIPS_THAT: Final = re.compile(r"(a `\w+` under .* \(line \d+)\) skips that")
_NUMBERS: Final = re.compile(r"(?:^|, )([A-Za-z_]\w*) = (-?\d+)(?=,|$)")
#: As `parting_values` says it.
_KEYS: Final = re.compile(r"(\S+) (has (?:its keys in another order|other keys) on .*)")
#: What makes an array of a list that is a variable.
_MADE_OF: Final = re.compile(r"\bnp\.(?:array|asarray|stack|concatenate)\((\w+)\)")
#: '`x = hash(name) % world` (line 11)', as the origin of an argument and as what sets it.
_HASHED: Final = re.compile(r"^(?:\S+ is set by `)?([^`]*(?<![\w.])hash\(.*?)`? \((line \d+)\)$")
_MADE: Final = re.compile(r"(\w+ = .*) \((line \d+)\)")


def by_hash(case: Case) -> str:
    """A number comes from hash(), which gives another one in each process for a text."""
    for stack in case.reported:
        for one in stack.frames:
            if found := next((m for note in one.notes if (m := _HASHED.search(note))), None):
                return (
                    f"hash() of a text is another number in each process: take a stable one, such as "
                    f"zlib.crc32, for `{found[1]}` ({in_file(one, found[2])})"
                )
    return ""


def by_rank_in_order(case: Case) -> str:
    """Ranks make groups in different orders, and what they go over depends on the rank."""
    for one in case.reported[0].frames[:1] if case.reported else ():
        for note in one.notes:
            found = _MADE.fullmatch(note)
            if found and RANK.search(found[1].partition("=")[2]):
                return (
                    "every rank must make the same groups in the same order, which here depends on the "
                    f"rank: `{found[1]}` ({in_file(one, found[2])})"
                )
    return ""


def by_values(case: Case) -> str:
    """A number differs as the calls do; the outermost caller that has it is named."""
    for one in reversed(case.reported[0].frames if case.reported else ()):
        for note in one.notes:
            if found := _PARTED.fullmatch(note):
                values = note.replace(f"{found[1]} = ", "").replace("; ", " and ")
                skip = next(filter(None, map(_SKIPS_THAT.fullmatch, one.notes)), None)
                if skip:
                    file = os.path.basename(one.frame.file)
                    return f"see why {found[1]} is {values}: {skip[1]} of {file}) skips that line"
                return f"see why {found[1]} is {values} (at {short_site(str(one.frame))})"
    return ""


def by_keys(case: Case) -> str:
    """Ranks go over a dict or a set in different orders."""
    for one in reversed(case.reported[0].frames if case.reported else ()):
        for at, note in enumerate(one.notes):
            if found := _KEYS.match(note):
                file, name = os.path.basename(one.frame.file), found[1]
                made = next((n for n in one.notes[at:] if n.startswith(f"{name} is set by ")), "")
                where = f": {made} of {file}" if made else f" ({short_site(str(one.frame))})"
                return f"see where {name} gets its keys{where}; it {found[2]}"
    return ""


def by_empty(case: Case) -> str:
    """Arrays differ in dtype: NumPy makes float64 of an empty list."""
    ranks = case.root.ranks
    if len(ranks) != 1:
        return ""
    values = case.session.ranks[ranks[0]].left_values
    for one in case.reported[0].frames if case.reported else ():
        for found in _MADE_OF.finditer(one.text):
            if values.get((one.frame.file, one.frame.line), {}).get(found[1]) == "is 0 long":
                return (
                    f"{found[1]} is empty on {say_ranks(ranks)}, and an array of nothing is float64: "
                    f"say the dtype at {short_site(str(one.frame)).partition(' (')[0]}"
                )
    return ""


def by_round(case: Case) -> str:
    """A number of the loop that all ranks are in differs."""
    ranks = set(case.root.ranks)
    mine = next((one for one in case.reported if set(one.ranks) <= ranks), None)
    other = next((one for one in case.reported if not set(one.ranks) & ranks), None)
    if mine is None or other is None:
        return ""
    are_apart = are_at_other_lines([mine], [other])
    theirs = {(loop, name): value for _, loop, name, value in _rounds(other)}
    for file, loop, name, value in _rounds(mine):
        there = theirs.get((loop, name), value)
        if there != value:
            if are_apart and abs(int(there) - int(value)) == 1:
                continue  # they are at other calls, of which one is of the next round
            on = f"{value} on {say_ranks(mine.ranks, 3)} and {there} on {say_ranks(other.ranks, 3)}"
            if line := _set_anew(case, mine, file, name):
                return f"{name} is {on} in {loop} of {file}), as {line} sets it anew"
            return f"see where {name} starts: in {loop} of {file}) it is {on}"
    return ""


def _set_anew(case: Case, stack: ReportedStack, file: str, name: str) -> str:
    """'`step, state = newest()` (line 38)': the one line of the loop that gives it another value; ''."""
    one = next((one for one in stack.frames if os.path.basename(one.frame.file) == file), None)
    source = None if one is None else case.source.parsed(one.frame.file)
    if one is None or source is None:
        return ""
    path = path_to(source.tree, one.frame.line)
    loop = next((node for node in path if isinstance(node, ast.While)), None)
    lines = [] if loop is None else sorted(set(bound_at(loop, name)))
    anew = [at for at in lines if not isinstance(path_to(source.tree, at)[-1], ast.AugAssign)]
    return f"`{line_text(source, anew[0])}` (line {anew[0]})" if len(anew) == 1 else ""


def _rounds(stack: ReportedStack) -> Iterator[tuple[str, str, str, str]]:
    """File, '`while step < last` (line 49', name and value of each number in the head of a loop."""
    for one in stack.frames:
        loops = [found for note in one.notes if (found := LOOP.fullmatch(note))]
        for loop in loops:
            for note in one.notes:
                for name, value in _NUMBERS.findall(note):
                    if re.search(rf"\b{re.escape(name)}\b", loop[1]):
                        yield os.path.basename(one.frame.file), f"{loop[1]} ({loop[2]}", name, value
