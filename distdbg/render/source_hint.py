"""A hint that only the source gives: the records show that a rank stopped, its loop shows by which condition.

see whether rank 2 left the loop by the `break` under `if patience.exhausted(loss)` (line 59): all ranks
have to decide that alike
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.find.parted import NAME_STEPS
from distdbg.diagnose.finding import Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.render.source_line import SourceLines
from distdbg.render.told_stacks import tell_stacks

#: As `loop_exits` and `enclosing` say it: what ends the loop early tells more than its head.
_WAYS: Final = (
    (
        re.compile(r"a (`(?:break|return)` under .*) ends the loop \(line \d+\)"),
        "see whether {who} left the loop by the {way}: all ranks have to decide that alike",
    ),
    (
        re.compile(r"in (`(?:for|while) .*` \(line \d+\))"),
        "see whether {way} makes as many rounds on {who} as on the others",
    ),
)


def with_source_hint(session: Session, verdict: Verdict, source: SourceLines) -> Verdict:
    """The same with the better hint, where the records alone know none."""
    root = verdict.root
    if root is None or root.advice != NAME_STEPS:
        return verdict
    told = tell_stacks(session, verdict, root, source, letters=80)
    notes = [note for stack in told if stack.is_cause for one in stack.frames for note in one.notes]
    who = say_ranks(root.ranks, 3)
    advice = next(filter(None, (_advice(way, notes, who) for way in _WAYS)), "")
    if not advice:
        return verdict
    better = replace(root, advice=advice)
    return replace(
        verdict,
        root=better,
        findings=tuple(better if one is root else one for one in verdict.findings),
    )


def _advice(way: tuple[re.Pattern[str], str], notes: Sequence[str], who: str) -> str:
    pattern, text = way
    found = next((match for note in notes if (match := pattern.fullmatch(note))), None)
    return text.format(who=who, way=found[1]) if found else ""
