"""What a hint is asked about: a finding, and the stacks that explain it with what their source says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import StackRole
from distdbg.diagnose.wording import say_ranks, short_site
from distdbg.render.enclosing import ParsedSource, imported_beside
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.generators import StackLine, lines_of_stack
from distdbg.render.source_line import SourceLines

#: Notes of what stands around a line: a loop, what ends one, a condition, a loop until there is a file.
LOOP: Final = re.compile(r"in (`(?:for|while) .*`) \((line \d+)\)")
ENDS: Final = re.compile(
    r"a (`(?:return|break)` under .*) \((line \d+)\) ends the loop \(line \d+\)"
)
UNDER: Final = re.compile(r"under (.*`) \((line \d+)\)")
FILE_LOOP: Final = re.compile(
    r"in (`while not .*\b(?:exists|is_file|isfile|is_dir|isdir)\(.*` \(line \d+\))"
)
#: In a condition that is meant for some ranks.
RANK: Final = re.compile(
    r"(?<![a-z_])(?:(?:get|local|global|node|world|group|my)_)?rank\b"
    r"|(?<![a-z_])is_(?:main|master)(?:_process|_rank)?\b|(?<![a-z_])is_(?:root|leader|chief)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One finding."""

    session: Session
    root: Finding
    reported: Sequence[ReportedStack]
    """The stacks of the cause first."""
    source: SourceLines

    @property
    def who(self) -> str:
        """'rank 2', 'ranks 0-1,3': the ranks of the cause."""
        return say_ranks(self.root.ranks, 3)

    def notes_of_cause(self) -> list[str]:
        """List the notes on the stacks of the cause, the innermost line first."""
        return [
            note
            for stack in self.reported
            if stack.is_cause
            for one in stack.frames
            for note in one.notes
        ]

    def sides(self) -> tuple[list[ReportedStack], list[ReportedStack]]:
        """Where the ranks of the cause are, and where the others are; without calls that were left out."""
        stacks = [one for one in self.reported if one.frames and not is_left_out(one)]
        mine = [one for one in stacks if set(one.ranks) <= set(self.root.ranks)]
        return mine, [one for one in stacks if one not in mine]


def are_at_other_lines(mine: Sequence[ReportedStack], others: Sequence[ReportedStack]) -> bool:
    """Whether these ranks are not all at one line, or have come there by other ones."""
    lines = {tuple(one.frame[:2] for one in stack.frames) for stack in [*mine, *others]}
    return len(lines) > 1


def is_left_out(stack: ReportedStack) -> bool:
    """Whether it is where a rank did not call what the others did."""
    return stack.role in (StackRole.LEFT_OUT, StackRole.OTHER_PEERS)


def in_file(frame: ReportedFrame, line: str) -> str:
    """'line 49 of train.py'."""
    return f"{line} of {os.path.basename(frame.frame.file)}"


def place_of_stack(stack: ReportedStack) -> str:
    """'train.py:49': its innermost line."""
    return short_site(str(stack.frames[0].frame)).partition(" (")[0]


def place_of_note(stack: ReportedStack, pattern: re.Pattern[str]) -> str:
    """'manager.py:24': the innermost of its lines that has such a note."""
    one = next(one for one in stack.frames if any(map(pattern.fullmatch, one.notes)))
    return short_site(str(one.frame)).partition(" (")[0]


def matches(stack: ReportedStack, pattern: re.Pattern[str]) -> Iterator[str]:
    """'`if x` (line 4 of a.py)' of each note that matches: its first group, and its second, a line."""
    for one in stack.frames:
        for note in one.notes:
            if found := pattern.fullmatch(note):
                yield f"{found[1]} ({in_file(one, found[2])})"


def first_match(stack: ReportedStack, pattern: re.Pattern[str]) -> str:
    """The innermost of these; ''."""
    return next(matches(stack, pattern), "")


def stack_lines(case: Case) -> list[StackLine]:
    """The lines of the first stack that has some, the innermost first, as far as there is source."""
    reported = next((one for one in case.reported if one.frames), None)
    return [] if reported is None else lines_of_stack(case.source, reported)


def program_files(case: Case) -> dict[str, ParsedSource]:
    """Parse the files of the stacks, and what they import from their own folder."""
    names = dict.fromkeys(one.frame.file for stack in case.reported for one in stack.frames)
    for name in [*names]:
        if (source := case.source.parsed(name)) is not None:
            names |= dict.fromkeys(imported_beside(source, name))
    parsed = ((name, case.source.parsed(name)) for name in names)
    return {name: source for name, source in parsed if source is not None}
