"""Mismatches: ranks that called different things, by their check or by the columns.

Ranks that ran with the check have errors with all of it; they are one finding for all ranks. Where there
was no check (level OFF, dumps of other tools) the calls are compared here. Only the first mismatch of a
group is reported: later calls differ as a consequence. The cause are the ranks outside the largest side;
without a largest side it is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from distdbg.check.short_batch import is_short_batch, size_hint
from distdbg.check.show import SUMS_HINT, TWO_CALLS_HINT
from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.failures import Failure, failures_of
from distdbg.diagnose.find.diverging_calls import DifferenceText, tell_parting_before
from distdbg.diagnose.find.first_call import find_first_call, other_array_advice
from distdbg.diagnose.find.forward_alone import forward_alone
from distdbg.diagnose.find.mismatch_calls import (
    MAX_SIDES,
    call_lines,
    calls_of_errors,
    differing_ranks,
    find_sides,
    first_issue,
    reported_advice,
    show_call,
)
from distdbg.diagnose.find.other_group import ADVICE, calls_meant_elsewhere, say_elsewhere
from distdbg.diagnose.find.paired_apart import paired_unlike
from distdbg.diagnose.find.phrases import as_evidence
from distdbg.diagnose.find.skipped_calls import (
    SkippedBefore,
    WentOn,
    find_skipped_before,
    find_went_on,
)
from distdbg.diagnose.find.two_threads import ADVICE as TWO_THREADS
from distdbg.diagnose.find.two_threads import are_of_threads, two_threads
from distdbg.diagnose.find.uneven_calls import find_left_loop, find_one_more_call
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.legality import split_pairs
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.shifted_calls import CallShift, find_slip
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import fit, known_ns, say_op, say_ranks, site_of
from distdbg.record.format import NO_COLLECTIVE, Status
from distdbg.record.forms import Shape

#: The calls of an op, by what was called.
_Sides = Sequence[Sequence[OpRef]]

_MAX_SITES: Final = 3
_MAX_PAIRS: Final = 8
#: Pairs of ranks of one all_to_all are compared up to this size of its group.
_MAX_MEMBERS: Final = 512
_USABLE: Final = "the group is still usable"
_NO_MAJORITY: Final = "no side has a majority: the calls do not show which one is wrong"
_WHERE: Final = "compare what {} called with what the others called at the same number, and why"


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    said = _said(session, matched)
    reported = {(finding.group, finding.seq) for finding in said}
    comparer = Comparer(session)
    for group, ops in sorted(matched):
        finding = _compared(session, matched, comparer, group) or _splits(session, group, ops)
        if finding is not None and not _is_reported(finding, reported):
            said.append(finding)
    return said


def _is_reported(finding: Finding, reported: set[tuple[str, int]]) -> bool:
    """Whether the ranks have said it, or something before it on that group."""
    return any(group == finding.group and seq <= finding.seq for group, seq in reported if seq)


# ------------------------------------------------------------------------- what the ranks said


def _said(session: Session, matched: Matched) -> list[Finding]:
    """One finding for all ranks that were told of one mismatch."""
    # The words name op, group and ranks; who had gone on notices it in a later call.
    alike: dict[object, list[Failure]] = defaultdict(list)
    for errors in failures_of(session).values():
        for error in errors:
            if error.type == "MismatchError":
                alike[error.what or (error.group, error.seq)].append(error)
    reported: dict[str, int] = {}
    for one in (error for errors in alike.values() for error in errors):
        if one.what and one.seq and not one.went_on:
            reported[one.group] = min(one.seq, reported.get(one.group, one.seq))
    messages = {
        one.group for errors in alike.values() for one in errors if one.what and not one.seq
    }
    return [
        _of_errors(session, matched, errors)
        for errors in alike.values()
        if errors[0].what or not _is_beside(errors[0], reported, messages)
    ]


def _is_beside(error: Failure, reported: Mapping[str, int], messages: Collection[str]) -> bool:
    """Whether its op was in flight with one that was told: it failed with that, without words of its own."""
    if error.seq:
        return error.seq >= reported.get(error.group, error.seq + 1)
    return error.group in messages


def _of_errors(session: Session, matched: Matched, errors: Sequence[Failure]) -> Finding:
    errors = sorted(errors, key=lambda e: (e.at_ns == NEVER, e.at_ns, e.rank))
    first = errors[0]
    calls = calls_of_errors(session, matched, errors)
    members = {error.rank for error in errors} | set(calls) | set(first.named)
    # A message has two sides: both are named, and neither has a majority.
    odd = set(first.named) if first.seq and set(first.named) < members else set()
    threads = _threads(session, calls)
    if threads is not None and are_of_threads(session, calls):
        odd = set()  # each made its calls in another order, by chance
    meant = calls_meant_elsewhere(session, matched, calls) if first.seq and not odd else {}
    odd = odd or set(meant)
    first_odd = [rank for rank in sorted(members) if rank in odd] + sorted(members - odd)
    evidence = list(call_lines(session, [calls[rank] for rank in first_odd if rank in calls]))
    evidence += list(meant.values())
    elsewhere = say_elsewhere(session, calls, meant)
    if elsewhere and first.what:
        evidence.append(as_evidence(first.what))
    known = sorted(odd & set(calls)) if first.seq and not meant else []
    left = find_left_loop(session, calls, known)
    new = None if left else find_first_call(session, calls, known)
    is_reported = left is not None or (new is not None and new.advice)
    skipped = None if is_reported else _went_on(session, matched, calls, odd, first.seq)
    if new is not None:
        evidence.append(new.evidence)
    before = None
    if not is_reported and skipped is None:
        before = _skipped_before(session, matched, calls, known, first.seq)
    more = None
    if not is_reported and skipped is None and before is None:
        more = find_one_more_call(session, calls, known)
    evidence[:0] = [one.evidence for one in (skipped, before) if one is not None]
    led = skipped or left or before or more
    if led is not None and first.what:
        evidence.insert(0, as_evidence(first.what))
    advice = led.advice if led else (new.advice if new else "")
    apart = None if advice or led or threads else paired_unlike(session, matched, calls, first.seq)
    if apart is not None:
        evidence.append(apart.evidence)
        advice = apart.advice
    if threads is not None and led is None:
        evidence.insert(0, threads)
        advice = TWO_THREADS
    went_on = all(error.went_on for error in errors)
    for line in first.details:
        said = line if went_on else line.removesuffix(_USABLE).removesuffix("; ")
        if said and not _is_known(line, calls) and not (meant and line == _NO_MAJORITY):
            evidence.append(as_evidence(said))
    return Finding(
        kind=FindingKind.MISMATCH,
        # A program that catches it and goes on has looked for it, or will fail by something else.
        severity=Severity.NOTE if went_on else Severity.ERROR,
        what=led.what if led else elsewhere or fit(first.what or _unsaid(first)),
        ranks=tuple(sorted(odd)),
        victims=tuple(sorted(members - odd)),
        group=first.group,
        seq=first.seq,
        at_ns=known_ns(first.at_ns),
        evidence=tuple(evidence),
        advice=ADVICE
        if meant
        else advice
        or forward_alone(session, calls.values())
        or other_array_advice(session, calls, known)
        or reported_advice(session, calls, first)
        or (_WHERE.format(say_ranks(sorted(odd))) if odd else ""),
    )


def _went_on(
    session: Session, matched: Matched, calls: Mapping[int, OpRef], odd: set[int], seq: int
) -> WentOn | None:
    """Find ranks that skipped the call of the others, as their own past shows."""
    others = tuple(sorted(set(calls) - odd))
    if not others or not odd <= set(calls) or not seq:
        return None
    op = calls[others[0]]
    group = session.ranks[op.rank].ops.group[op.at]
    return find_went_on(session, matched.of(group), tuple(sorted(odd)), others, seq)


def _skipped_before(
    session: Session, matched: Matched, calls: Mapping[int, OpRef], odd: Sequence[int], seq: int
) -> SkippedBefore | None:
    others = sorted(set(calls) - set(odd))
    if not odd or not others:
        return None
    ops, at = session.ranks[others[0]].ops, calls[others[0]].at
    if ops.flags[at] & NO_COLLECTIVE:
        return None
    group = ops.group[at]
    return find_skipped_before(session, matched.of(group), tuple(odd), others[0], seq)


def _threads(session: Session, calls: Mapping[int, OpRef]) -> Evidence | None:
    if not calls:
        return None
    op = calls[min(calls)]
    return two_threads(session, session.ranks[op.rank].ops.group[op.at], calls)


def _unsaid(error: Failure) -> str:
    """Describe a mismatch whose words are lost."""
    which = f"{error.kind or 'op'} #{error.seq}" if error.seq else error.kind or "a message"
    where = f" on group '{error.group}'" if error.group else ""
    return f"{which}{where} differs between ranks"


def _is_known(line: str, calls: Mapping[int, OpRef]) -> bool:
    """Whether a line of an error says of the calls what their ops say, or is about its reader only."""
    is_call = " called " in line and not line.startswith("before it")
    return line.startswith("this rank is") or (is_call and bool(calls))


# ------------------------------------------------------------------------- what the columns say


def _compared(session: Session, matched: Matched, comparer: Comparer, group: int) -> Finding | None:
    ops = matched.of(group)
    seq = comparer.first_difference(ops)
    if seq is None:
        return None
    sides = find_sides(comparer, ops.at(seq))
    calls = {op.rank: op for side in sides for op in side}
    odd = differing_ranks(session, sides)
    meant = {} if odd else calls_meant_elsewhere(session, matched, calls)
    odd = odd or tuple(sorted(meant))
    slip = _slip(session, comparer, ops, sides, seq)
    numbers = {"sides": float(len(sides))}
    rest = comparer.differences(ops, sides[-1][0].rank, sides[0][0].rank, seq + 1)
    if rest:
        numbers["later"] = float(rest)
    if slip is not None:
        numbers["slipped"] = float(slip.skipped)
    parted = DifferenceText()
    if odd and not meant and (slip is None or abs(slip.skipped) == 1):
        parted = tell_parting_before(session, ops, group, odd, sides[0][0].rank, seq)
    if parted.seq:
        numbers["parted"] = float(parted.seq)
    evidence = [
        line for side in sides[:MAX_SIDES] for line in call_lines(session, side, _MAX_SITES)
    ]
    evidence += meant.values()
    evidence += [*_slip_lines(session, ops, sides, seq, slip), *parted.evidence]
    evidence += _previous_lines(session, ops, sides, seq)
    if not odd:
        evidence.append(Evidence(text=_NO_MAJORITY))
    return Finding(
        kind=FindingKind.MISMATCH,
        severity=_severity(session, ops, calls),
        what=_what(session, comparer, ops, sides, seq, slip, parted),
        ranks=odd,
        victims=tuple(sorted(set(calls) - set(odd))),
        group=session.groups[group].label,
        seq=seq,
        at_ns=first_issue(session, calls, odd or tuple(calls)),
        evidence=tuple(evidence),
        advice=ADVICE if meant else parted.advice or _advice(session, comparer, sides, odd, seq),
        numbers=numbers,
    )


def _severity(session: Session, ops: GroupOps, calls: Mapping[int, OpRef]) -> Severity:
    """A warning only while everything on the group went well all the same."""
    for rank in calls:
        last = ops.index(rank, ops.by_rank[rank].last_seq)
        if last is None or session.ranks[rank].ops.status[last] != Status.OK:
            return Severity.ERROR
    return Severity.WARNING


# --------------------------------------------------------------------------------------- slips


def _slip(
    session: Session, comparer: Comparer, ops: GroupOps, sides: _Sides, seq: int
) -> CallShift | None:
    """Whether the first odd rank is some calls off against the largest side."""
    theirs, others = sides[-1][0].rank, sides[0][0].rank

    def compare(seq_odd: int, seq_other: int) -> tuple[bool, bool] | None:
        mine, other = ops.index(theirs, seq_odd), ops.index(others, seq_other)
        if mine is None or other is None:
            return None
        one, two = OpRef(theirs, mine), OpRef(others, other)
        site = site_of(session, one)
        return not comparer.differing(one, two), bool(site) and site == site_of(session, two)

    return find_slip(compare, seq)


def _slip_lines(
    session: Session, ops: GroupOps, sides: _Sides, seq: int, slip: CallShift | None
) -> Iterator[Evidence]:
    if slip is None:
        return
    theirs, others = sides[-1][0].rank, sides[0][0].rank
    rank, whose = (others, theirs) if slip.skipped > 0 else (theirs, others)
    at = ops.index(rank, seq)
    assert at is not None  # both sides have called it
    op = OpRef(rank, at)
    count = abs(slip.skipped)
    calls = "call" if count == 1 else "calls"
    text = (
        f"from there on the calls of rank {theirs} are those that rank {others} makes {count} {calls} "
        f"{'later' if slip.skipped > 0 else 'earlier'}: rank {whose} did not make {say_op(session, op)}"
    )
    yield Evidence(text=text, rank=theirs, op=op, site=site_of(session, op))


def _previous_lines(session: Session, ops: GroupOps, sides: _Sides, seq: int) -> Iterator[Evidence]:
    """The op before says where to look when the order has slipped."""
    for side in sides[:MAX_SIDES]:
        at = ops.index(side[0].rank, seq - 1)
        if at is not None:
            before = OpRef(side[0].rank, at)
            yield Evidence(
                text=f"before it, rank {before.rank} called {say_op(session, before)}",
                rank=before.rank,
                op=before,
                site=site_of(session, before),
            )


# --------------------------------------------------------------------------------------- words


def _what(
    session: Session,
    comparer: Comparer,
    ops: GroupOps,
    sides: _Sides,
    seq: int,
    slip: CallShift | None,
    parted: DifferenceText,
) -> str:
    group = session.group_of(sides[0][0])
    where = f" on group '{group.label}'" if group else ""
    odd = differing_ranks(session, sides)
    if slip is not None and odd and len(sides) == 2:
        count, whom = abs(slip.skipped), say_ranks(odd, 3)
        calls = "" if count == 1 else f" and {count - 1} more"
        if slip.skipped > 0:
            op = sides[0][0]
            if parted.seq:
                return fit(f"{parted.head}{where}", f"; the calls differ since #{seq}")
            like = ", or an earlier one like it," if _is_repeat(session, ops, op, seq) else ""
            head = f"{whom} skipped {session.name_of(op)}{calls}{like}"
        else:
            op = sides[1][0]
            head = f"{whom} called {session.name_of(op)}{calls} and the others did not"
        site = site_of(session, op)
        return fit(head, f" at {site}" if site else "", f": off by {count} since")
    aspects = _aspects(comparer, sides)
    kinds = {session.kind_of(side[0]) for side in sides}
    head = f"{kinds.pop() if len(kinds) == 1 else 'op'} #{seq}{where} differs between ranks: "
    texts = [
        f"{show_call(session, side[0], aspects)} on {say_ranks([op.rank for op in side], 3)}"
        for side in sides[:MAX_SIDES]
    ]
    if len(sides) > MAX_SIDES:
        texts.append(f"and {len(sides) - MAX_SIDES} other calls")
    return fit(head + ", ".join(texts), f"; {parted.head}" if parted.seq else "")


def _is_repeat(session: Session, ops: GroupOps, op: OpRef, seq: int) -> bool:
    """Whether the call before was of the same kind, from the same line: either may be the skipped one."""
    at = ops.index(op.rank, seq - 1)
    if at is None:
        return False
    before = OpRef(op.rank, at)
    facts = [(session.kind_of(each), site_of(session, each)) for each in (op, before)]
    return facts[0] == facts[1]


def _aspects(comparer: Comparer, sides: _Sides) -> set[str]:
    return {name for side in sides[1:] for name in comparer.differing(side[0], sides[0][0])}


def _is_short(session: Session, sides: _Sides, odd: Sequence[int], seq: int) -> bool:
    shapes: dict[bool, list[Shape]] = {True: [], False: []}
    for side in sides:
        form = session.form_of(side[0])
        if not form.inputs.items:
            return False
        shapes[side[0].rank in odd].append(form.inputs.items[0])
    usual = shapes[False]
    return bool(usual and shapes[True]) and all(
        is_short_batch(one, usual[0], seq) for one in shapes[True]
    )


def _advice(
    session: Session, comparer: Comparer, sides: _Sides, odd: Sequence[int], seq: int
) -> str:
    aspects = _aspects(comparer, sides)
    where = f" on {say_ranks(odd, 3)}" if odd else ""
    if aspects & {"kind", "call"}:
        if alone := forward_alone(session, [op for side in sides for op in side]):
            return alone
        return Advice(
            f"a branch{where} calls other ops, or skips one: compare the lines of the calls",
            Trait.OTHER_LINES,
        )
    if aspects & {"elements", "shape"}:
        calls = {op.rank: op for side in sides for op in side}
        if other := other_array_advice(session, calls, odd):
            return other
        is_short = bool(odd) and _is_short(session, sides, odd, seq)
        return Advice(size_hint(where, is_short_batch=is_short), Trait.SIZES)
    if {"dtype", "op"} <= aspects:
        return TWO_CALLS_HINT
    if "dtype" in aspects:
        return Advice(
            f"see where the arrays{where} get their dtype: all ranks need the same", Trait.DTYPES
        )
    if "op" in aspects:
        return "use the same reduce op on all ranks"
    if "sums" in aspects:
        return SUMS_HINT
    return Advice(
        f"see where src or dst comes from{where}: all ranks must name the same global rank",
        Trait.SIZES,
    )


# --------------------------------------------------------------------------------------- splits


def _splits(session: Session, group: int, ops: GroupOps) -> Finding | None:
    """An all_to_all that has not gone well and whose split sizes do not meet."""
    members = session.members(group)
    if not 1 < len(members) <= _MAX_MEMBERS:
        return None
    for seq in _troubled(session, ops):
        calls = {r: op for r, op in ops.at(seq).items() if session.kind_of(op) == "all_to_all"}
        forms = {rank: session.form_of(op) for rank, op in calls.items()}
        pairs = split_pairs(forms, members)
        if not pairs:
            continue
        involved = {rank for pair in pairs for rank in pair[:2]}
        # A rank in each of several pairs has the splits that do not fit the others'.
        odd = {r for r in involved if all(r in pair[:2] for pair in pairs)} if pairs[1:] else set()
        odd = odd if len(odd) == 1 else set()
        blamed = tuple(sorted(odd))
        label = session.groups[group].label
        lines = [
            Evidence(
                text=f"rank {p.sender} sends {p.sends} element{'' if p.sends == 1 else 's'} to rank "
                f"{p.receiver}, which expects {p.expects}",
                rank=p.sender,
            )
            for p in pairs[:_MAX_PAIRS]
        ]
        whose = say_ranks(odd or involved, 3)
        what = (
            f"all_to_all #{seq} on group '{label}' differs between ranks: split sizes do not match"
        )
        return Finding(
            kind=FindingKind.MISMATCH,
            severity=Severity.ERROR,
            what=fit(what, f" on {whose}" if odd else f" between {whose}"),
            ranks=blamed,
            victims=tuple(sorted(set(calls) - odd)),
            group=label,
            seq=seq,
            at_ns=first_issue(session, calls, blamed or tuple(calls)),
            evidence=(*lines, *call_lines(session, [op for _, op in sorted(calls.items())])),
            advice="input_split_sizes[j] of rank i must be output_split_sizes[i] of rank j",
            numbers={"pairs": float(len(pairs))},
        )
    return None


def _troubled(session: Session, ops: GroupOps) -> list[int]:
    """The seqs at the ends of ranks that have not gone well: an op that fails ends a group."""
    seqs = set()
    for rank, rank_ops in ops.by_rank.items():
        at = rank_ops.index(rank_ops.last_seq)
        if at is not None and session.ranks[rank].ops.status[at] != Status.OK:
            seqs.add(rank_ops.last_seq)
    return sorted(seqs)
