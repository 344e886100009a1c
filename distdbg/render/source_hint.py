"""The better hint, where only the source gives it: the records show that a rank stopped, its loop shows why.

HINTS is the table of all: of which findings each is asked, in the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from distdbg.diagnose.finding import Finding, FindingKind, Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import OF_ADVICE, Advice, Trait
from distdbg.render.finding_stacks import tell_stacks
from distdbg.render.hints import (
    array_origin,
    branches,
    clocks,
    data_origin,
    dtypes,
    files,
    joining,
    left_behind,
    parameters,
    patterns,
    peers,
    randomness,
    rank_values,
    retries,
    set_orders,
    skipped_ends,
    tags,
    taken_files,
    unsynced,
    values,
    waits,
)
from distdbg.render.hints.case import Case
from distdbg.render.source_line import SourceLines

#: Kinds of ranks that others wait for.
_WAITED_FOR: Final = (
    FindingKind.MISSING_RANK,
    FindingKind.STUCK_RANK,
    FindingKind.STALL,
    FindingKind.STOPPED,
)
#: Where one call was given other arrays, or roots.
_OF_VALUES: Final = (Trait.SIZES, Trait.DTYPES, Trait.OTHER_ARRAY, Trait.MESSAGE)
#: Kinds whose ranks reached no call that others did not make: they are late, or not there.
_ELSEWHERE: Final = (Trait.ASLEEP, Trait.BUSY, Trait.JOINING, Trait.NEVER_JOINED)
_APART: Final = (
    Trait.NO_MARKS,
    Trait.ONE_MORE_CALL,
    Trait.OTHER_ARRAY,
    Trait.OTHER_LINES,
    Trait.SIZES,
)


def _is_mismatch(root: Finding) -> bool:
    return root.kind is FindingKind.MISMATCH


def _is_deadlock(root: Finding) -> bool:
    return root.kind is FindingKind.DEADLOCK


def _is_apart(root: Finding) -> bool:
    """Whether ranks have made other calls than others, or have given them arrays of another size."""
    if any(map(root.has, _ELSEWHERE)):
        return False
    if root.kind is FindingKind.MISMATCH:
        return any(map(root.has, _APART))
    return root.kind in (FindingKind.DEADLOCK, FindingKind.MISSING_RANK)


def _is_plain_mismatch(root: Finding) -> bool:
    """One of which the records know no place to look at."""
    is_known = root.has(Trait.NO_MARKS) or root.has(Trait.ONE_MORE_CALL)
    return _is_mismatch(root) and not is_known


def _is_of_values(root: Finding) -> bool:
    """Whether ranks have given other values, or arrays of another form, to one call."""
    if root.kind is FindingKind.DIVERGED:
        return True
    return _is_mismatch(root) and any(map(root.has, _OF_VALUES))


def _is_asleep(root: Finding) -> bool:
    return root.kind in _WAITED_FOR and root.has(Trait.ASLEEP)


def _is_in_lock(root: Finding) -> bool:
    return root.kind in _WAITED_FOR and root.has(Trait.IN_LOCK)


def _is_busy(root: Finding) -> bool:
    waited_for = (FindingKind.MISSING_RANK, FindingKind.STUCK_RANK)
    return root.kind in waited_for and root.has(Trait.BUSY)


class HintRule(NamedTuple):
    """A hint, and of which findings it is asked."""

    is_asked: Callable[[Finding], bool]
    hint: Callable[[Case], str]
    traits: tuple[Trait, ...] = ()
    """The traits of the advice that it gives."""
    retell: Callable[[Case], Finding] | None = None
    """The finding in other words, where what its hint has found shows that they are wrong."""


def _of(trait: Trait) -> Callable[[Finding], bool]:
    return lambda root: root.has(trait)


HINTS: Final[tuple[HintRule, ...]] = (
    HintRule(_of(Trait.WORLD_SIZE), joining.by_world_size, (Trait.HOLDS_ALWAYS,)),
    HintRule(_of(Trait.RANK_TWICE), joining.by_rank, (Trait.HOLDS_ALWAYS,)),
    HintRule(_of(Trait.TAG_CHANGED), tags.by_origin),
    HintRule(_of(Trait.UNUSED_PARAMETERS), parameters.by_condition),
    HintRule(_of(Trait.OWN_ERROR), parameters.past_ddp, (Trait.ERROR_PLACE,)),
    HintRule(_of(Trait.OWN_ERROR), taken_files.by_one_name, (Trait.ERROR_PLACE,)),
    HintRule(_of(Trait.OWN_ERROR), taken_files.by_removal, (Trait.ERROR_PLACE,)),
    HintRule(_of(Trait.OWN_ERROR), data_origin.by_loop_over_data, (Trait.ERROR_PLACE,)),
    HintRule(_is_apart, unsynced.by_no_sync),
    HintRule(_is_apart, randomness.by_own_draw),
    HintRule(_is_apart, randomness.by_shared_draw),
    HintRule(_is_apart, clocks.by_own_clock),
    HintRule(_is_mismatch, retries.by_retry),  # it may look like any of the others
    HintRule(_is_mismatch, retries.by_attempt, retell=retries.called_again),
    HintRule(_of(Trait.NO_MARKS), patterns.by_steps),
    HintRule(_of(Trait.ENDED_WITHOUT), patterns.by_exit_of_loop),
    HintRule(
        lambda root: _is_mismatch(root) and root.has(Trait.ONE_MORE_CALL), patterns.by_one_more
    ),
    HintRule(lambda root: _is_plain_mismatch(root) or _is_deadlock(root), patterns.by_skipping),
    HintRule(_of(Trait.SOME_ALONE), branches.by_some_alone),
    HintRule(_is_deadlock, peers.by_loop_over_peers),
    HintRule(_is_asleep, files.by_file_made_later, (Trait.HOLDS_ALWAYS,)),
    HintRule(_is_asleep, left_behind.by_lock_file, (Trait.HOLDS_ALWAYS,)),
    HintRule(_is_asleep, left_behind.by_left_function),
    HintRule(_is_asleep, patterns.by_file, (Trait.HOLDS_ALWAYS,)),
    HintRule(_is_in_lock, waits.by_own_lock, (Trait.HOLDS_ALWAYS,)),
    HintRule(_is_asleep, skipped_ends.by_unfinished_item, (Trait.HOLDS_ALWAYS,)),
    HintRule(_is_busy, patterns.by_endless_loop, (Trait.ENDLESS_LOOP,)),
    HintRule(_of(Trait.OF_TIMER), waits.by_timer, (Trait.SIGNAL_PLACE,)),
    HintRule(_of(Trait.CRASHED), waits.by_recursion_limit, (Trait.SIGNAL_PLACE,)),
    HintRule(_of(Trait.OF_PIPE), waits.by_default_of_pipes, (Trait.SIGNAL_PLACE,)),
    HintRule(_of(Trait.SENDER_UNKNOWN), waits.by_kill, (Trait.SIGNAL_PLACE,)),
    HintRule(_is_mismatch, values.by_hash),
    HintRule(_of(Trait.GROUPS), values.by_rank_in_order),
    HintRule(_of(Trait.GROUP_CHOICE), rank_values.by_group_choice),
    HintRule(_of(Trait.GROUPS), rank_values.by_rank_choice),
    HintRule(_of(Trait.GROUPS), branches.by_branch),
    HintRule(_of(Trait.OTHER_ARRAY), branches.by_skipped_round),
    HintRule(_of(Trait.OTHER_ARRAY), values.by_values),
    HintRule(_is_mismatch, values.by_keys),
    HintRule(_is_of_values, set_orders.by_set_order),
    HintRule(_of(Trait.DTYPES), values.by_empty),
    HintRule(_of(Trait.DTYPES), dtypes.by_default_dtype),
    HintRule(_of(Trait.OTHER_LINES), branches.by_rank_condition),
    HintRule(_is_mismatch, values.by_round),
    HintRule(
        lambda root: _is_deadlock(root) and root.has(Trait.ONE_SIDE_FIRST), branches.by_same_branch
    ),
    HintRule(_is_deadlock, branches.by_rounds),
    HintRule(_is_deadlock, left_behind.by_left_function),
    HintRule(lambda root: _is_mismatch(root) or _is_deadlock(root), branches.by_exit),
    HintRule(lambda root: _is_mismatch(root) and root.has(Trait.SIZES), values.by_values),
    HintRule(_of(Trait.OTHER_LINES), branches.by_branch),
    HintRule(lambda root: _is_mismatch(root) and root.has(Trait.SIZES), branches.by_branch),
    HintRule(_of(Trait.MESSAGE), values.by_values),
    HintRule(_is_of_values, rank_values.by_rank_choice),
    HintRule(_of(Trait.SIZES), array_origin.by_function),
    HintRule(_is_of_values, rank_values.by_rank_number),
)  # fmt: skip


def with_source_hint(session: Session, verdict: Verdict, source: SourceLines) -> Verdict:
    """Return the verdict with the better hint, where the records alone know none."""
    root = verdict.root
    if root is None:
        return verdict
    asked = [rule for rule in HINTS if rule.is_asked(root)]
    if not asked:
        return verdict
    reported = tell_stacks(session, verdict, root, source, letters=80)
    case = Case(session=session, root=root, reported=reported, source=source)
    given = ((rule, Advice(rule.hint(case), *rule.traits)) for rule in asked)
    found = next((one for one in given if one[1]), None)
    if found is None:
        return verdict
    rule, advice = found
    reported_root = root if rule.retell is None else rule.retell(case)
    # What it is about stays; what the other advice was worth does not.
    better = replace(reported_root, advice=advice, traits=root.all_traits - OF_ADVICE)
    return replace(
        verdict,
        what=better.what if verdict.what == root.what else verdict.what,
        root=better,
        findings=tuple(better if one is root else one for one in verdict.findings),
    )
