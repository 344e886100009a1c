"""A hint that only the source gives: the records show that a rank stopped, its loop shows by which condition.

see whether rank 2 left the loop by the `break` under `if patience.exhausted(loss)` (line 59): all ranks
have to decide that alike
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from distdbg.diagnose.find.parted import NAME_STEPS
from distdbg.diagnose.finding import Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.render.source_line import SourceLines
from distdbg.render.told_stacks import tell_stacks

#: As `loop_exits` says it.
_ENDS: Final = re.compile(r"a (`(?:break|return)` under .*) ends the loop \(line \d+\)")


def with_source_hint(session: Session, verdict: Verdict, source: SourceLines) -> Verdict:
    """The same with the better hint, where the records alone know none."""
    root = verdict.root
    if root is None or root.advice != NAME_STEPS:
        return verdict
    told = tell_stacks(session, verdict, root, source, letters=80)
    notes = [note for stack in told if stack.is_cause for one in stack.frames for note in one.notes]
    found = next((match for note in notes if (match := _ENDS.fullmatch(note))), None)
    if found is None:
        return verdict
    who = say_ranks(root.ranks, 3)
    better = replace(
        root,
        advice=f"see whether {who} left the loop by the {found[1]}: all ranks have to decide that alike",
    )
    return replace(
        verdict,
        root=better,
        findings=tuple(better if one is root else one for one in verdict.findings),
    )
