"""The better hint, where only the source gives it: the records show that a rank stopped, its loop shows why.

HINTS is the table of all: of which findings each is asked, in the order in which they are asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from distdbg.diagnose.find.deadlock import MESSAGES
from distdbg.diagnose.find.missing import ENDED_WITHOUT
from distdbg.diagnose.find.one_more_call import ONE_MORE
from distdbg.diagnose.find.parted import NAME_STEPS
from distdbg.diagnose.finding import Finding, FindingKind, Verdict
from distdbg.diagnose.session import Session
from distdbg.record.ends import UNKNOWN_SENDER
from distdbg.render.hints import (
    branches,
    dtypes,
    files,
    joining,
    left_behind,
    parameters,
    patterns,
    skipped_ends,
    tags,
    values,
    waits,
)
from distdbg.render.hints.case import Case
from distdbg.render.source_line import SourceLines
from distdbg.render.told_stacks import tell_stacks

#: Kinds of ranks that others wait for.
_WAITED_FOR: Final = (
    FindingKind.MISSING_RANK,
    FindingKind.STUCK_RANK,
    FindingKind.STALL,
    FindingKind.STOPPED,
)
_ASLEEP: Final = re.compile("asleep|for a lock")
_OF_TIMER: Final = re.compile(r"was killed by SIG(?:ALRM|VTALRM|PROF)\b")
#: Hints of who knows the records alone: of ranks that are at other lines; of arrays that differ in size.
_AT_OTHER_LINES: Final = re.compile(
    "^a branch|^the calls are at different lines|may depend on its own data|made one call fewer"
    "|^use the groups in the same order: see why|^see why .* do not, or what skipped"
)
_SAME_GROUPS: Final = "every rank must make the same groups in the same order"
_SIZES: Final = re.compile(
    "^see what sets the size|^arrays of several sizes|^see where src or dst comes from"
)


def _is_mismatch(root: Finding) -> bool:
    return root.kind is FindingKind.MISMATCH


def _is_deadlock(root: Finding) -> bool:
    return root.kind is FindingKind.DEADLOCK


def _has_raised(root: Finding) -> bool:
    """By an error of the program itself, of which nothing better is known than its line."""
    return root.kind is FindingKind.DEAD_RANK and root.advice.startswith("look at ")


def _is_plain_mismatch(root: Finding) -> bool:
    """One of which the records know no place to look at."""
    return _is_mismatch(root) and root.advice != NAME_STEPS and not _has_one_more(root)


def _has_one_more(root: Finding) -> bool:
    return _is_mismatch(root) and root.advice.startswith(ONE_MORE)


def _has_left(root: Finding) -> bool:
    return root.advice.endswith(ENDED_WITHOUT)


def _is_asleep(root: Finding) -> bool:
    words = (root.what, *(fact.text for fact in root.evidence))
    return root.kind in _WAITED_FOR and any(map(_ASLEEP.search, words))


def _is_busy(root: Finding) -> bool:
    return (
        root.kind in (FindingKind.MISSING_RANK, FindingKind.STUCK_RANK) and "busy in " in root.what
    )


HINTS: Final[tuple[tuple[Callable[[Finding], bool], Callable[[Case], str]], ...]] = (
    (lambda root: root.advice.startswith("init_process_group(world_size="), joining.by_world_size),
    (lambda root: root.advice.startswith("give each process a rank of its own: "), joining.by_rank),
    (lambda root: root.advice.startswith("see what the tag at "), tags.by_origin),
    (lambda root: root.advice.startswith("use all parameters"), parameters.by_condition),
    (_has_raised, parameters.past_ddp),
    (_is_mismatch, branches.by_retry),  # it may look like any of the others
    (lambda root: root.advice == NAME_STEPS, patterns.by_steps),
    (_has_left, patterns.by_exit_of_loop),
    (_has_one_more, patterns.by_one_more),
    (lambda root: _is_plain_mismatch(root) or _is_deadlock(root), patterns.by_skipping),
    (_is_asleep, files.by_file_made_later),
    (_is_asleep, left_behind.by_lock_file),
    (_is_asleep, left_behind.by_left_function),
    (_is_asleep, patterns.by_file),
    (_is_asleep, waits.by_own_lock),
    (_is_asleep, skipped_ends.by_unfinished_item),
    (_is_busy, patterns.by_endless_loop),
    (lambda root: root.kind is FindingKind.DEAD_RANK and bool(_OF_TIMER.search(root.what)), waits.by_timer),
    (lambda root: root.advice.startswith(UNKNOWN_SENDER), waits.by_kill),
    (_is_mismatch, values.by_hash),
    (lambda root: root.advice.startswith(_SAME_GROUPS), values.by_rank_in_order),
    (lambda root: root.advice.startswith(_SAME_GROUPS), branches.by_branch),
    (lambda root: root.advice.startswith("another array on"), branches.by_skipped_round),
    (_is_mismatch, values.by_keys),
    (_is_mismatch, values.by_empty),
    (_is_mismatch, dtypes.by_default_dtype),
    (lambda root: bool(_AT_OTHER_LINES.search(root.advice)), branches.by_rank_condition),
    (_is_mismatch, values.by_round),
    (lambda root: _is_deadlock(root) and root.advice == MESSAGES, branches.by_same_branch),
    (_is_deadlock, branches.by_rounds),
    (_is_deadlock, left_behind.by_left_function),
    (lambda root: _is_mismatch(root) or _is_deadlock(root), branches.by_exit),
    (lambda root: _is_mismatch(root) and bool(_SIZES.search(root.advice)), values.by_values),
    (lambda root: bool(_AT_OTHER_LINES.search(root.advice)), branches.by_branch),
    (lambda root: _is_mismatch(root) and bool(_SIZES.search(root.advice)), branches.by_branch),
)  # fmt: skip


def with_source_hint(session: Session, verdict: Verdict, source: SourceLines) -> Verdict:
    """The same with the better hint, where the records alone know none."""
    root = verdict.root
    if root is None:
        return verdict
    asked = [hint for is_asked, hint in HINTS if is_asked(root)]
    if not asked:
        return verdict
    told = tell_stacks(session, verdict, root, source, letters=80)
    case = Case(session=session, root=root, told=told, source=source)
    advice = next(filter(None, (hint(case) for hint in asked)), "")
    if not advice:
        return verdict
    better = replace(root, advice=advice)
    return replace(
        verdict,
        root=better,
        findings=tuple(better if one is root else one for one in verdict.findings),
    )
