"""Ranks that died or failed by themselves: a signal, out of memory, an exception, an exit code.

Ranks that failed because of others (they lost a peer, timed out, were aborted or ended by the launcher)
are no finding here. Several ranks with the same reason are one finding. A rank that others
lost, and whose end nobody saw, is dead as well.
"""

from __future__ import annotations

import re
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from distdbg.diagnose.debugged import prompt_of
from distdbg.diagnose.endings import Endings, EndRole, RankEnding, endings_of, swept_away
from distdbg.diagnose.failures import Failure, Failures, failures_of
from distdbg.diagnose.find.exit_call import exit_call, exit_site
from distdbg.diagnose.find.no_room import too_long_message
from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.last_op import last_op
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.stops import ONE_BLOW_NS, is_stopped_from_outside
from distdbg.diagnose.traits import NO_TRAITS, Advice, Trait
from distdbg.diagnose.wording import fit, known_ns, say_ranks, say_s, verb
from distdbg.record.durations import nbytes_text
from distdbg.record.ends import MORE_MEMORY, TIMERS
from distdbg.record.memory_share import MemoryShare, its_share

_TOLD: Final = re.compile(r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+)")


_MAX_VICTIMS_TOLD = 4


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    failures = failures_of(session)
    endings = endings_of(session, failures)
    dead = [e for e in endings.values() if e.part is EndRole.CAUSE]
    if not is_stopped_from_outside(endings):
        swept = swept_away(endings)
        struck = [e for e in endings.values() if e.part is EndRole.INTERRUPTED]
        dead += [e for e in struck if e.rank not in swept]
    together: dict[str, list[RankEnding]] = defaultdict(list)
    unlike = find_unlike_models({e.rank: e.reason for e in endings.values()})
    explained = [e for e in dead if unlike is not None and e.rank in unlike.odd + unlike.others]
    for ending in dead:
        if ending in explained:
            continue
        # 'exited with code 1' is too little to be called the same.
        together[ending.reason or _blow(ending, dead)].append(ending)
    lost = _lost(session, failures, endings)
    findings = [_finding(session, same, failures, waits) for same in together.values()]
    if unlike is not None and explained:
        findings.append(_unlike_finding(session, unlike, explained))
    return findings + [_lost_finding(session, rank, by, waits) for rank, by in lost.items()]


def _unlike_finding(session: Session, found: _UnlikeModels, same: Sequence[RankEnding]) -> Finding:
    """Every rank has raised; only the odd ones are the cause."""
    shown = sorted(same, key=lambda one: (one.rank not in found.odd, one.rank))
    where = shown[0].where
    return Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what=fit(found.what, f", at {where}" if where else ""),
        ranks=found.odd,
        victims=found.others,
        at_ns=known_ns(min(one.at_ns for one in same)),
        evidence=tuple(e for one in shown[:2] for e in _evidence(session, one)),
        advice=found.advice,
    )


def _blow(ending: RankEnding, dead: Sequence[RankEnding]) -> str:
    """One word for all ranks that one signal has killed at one time, from outside or by one cause."""
    if ending.end is None or ending.end.signal is None or ending.at_ns == NEVER:
        return f"{ending.how} {ending.rank}"
    struck = sorted(e.at_ns for e in dead if not e.reason and e.how == ending.how)
    first = next(at_ns for at_ns in reversed(struck) if at_ns <= ending.at_ns)
    while before := [at_ns for at_ns in struck if first - ONE_BLOW_NS <= at_ns < first]:
        first = before[0]
    return f"{ending.how} {first}"


def _finding(session: Session, same: list[RankEnding], failures: Failures, waits: Waits) -> Finding:
    same = sorted(same, key=lambda e: (e.at_ns == NEVER, e.at_ns, e.rank))
    first, ranks = same[0], tuple(sorted(e.rank for e in same))
    victims = _victims(set(ranks), failures, waits)
    if len(same) > 1 and not first.reason:
        evidence = _struck(session, same)
    else:
        evidence = [e for one in same[:8] for e in _evidence(session, one)]
    too_long = None
    if len(same) == 1 and first.end is not None and first.end.signal == signal.SIGABRT:
        too_long = too_long_message(session, first.rank)
    if too_long is not None:
        evidence.append(too_long[1])
    evidence += _losses(ranks, failures)
    share = _share(session, first) if len(same) == 1 else None
    is_of_timer = not first.reason and first.end is not None and first.end.signal in TIMERS
    return Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what=fit(
            f"{say_ranks(ranks)} {_plural(first.how, ranks)}",
            f": {too_long[0]}" if too_long is not None else "",
            f" at {first.where}" if first.where else "",
            _at_prompt(session, ranks),
            _whom_it_kept(session, ranks, failures, waits),
        ),
        ranks=ranks,
        victims=victims,
        at_ns=known_ns(first.at_ns),
        evidence=tuple(evidence),
        advice="gloo ends a rank that has no room for what arrives: give the recv an array of that size"
        if too_long is not None
        else share.advice(first.rank)
        if share
        else _advice(session, first, is_alone=len(same) == 1),
        traits=frozenset((Trait.OF_TIMER,)) if is_of_timer else NO_TRAITS,
    )


def _at_prompt(session: Session, ranks: tuple[int, ...]) -> str:
    """Say where a rank was that ended at the prompt of its debugger; ''."""
    prompt = prompt_of(session, ranks[0]) if len(ranks) == 1 else None
    if prompt is None:
        return ""
    return " at the prompt of its debugger" + (f", at {prompt.site}" if prompt.site else "")


def _plural(how: str, ranks: tuple[int, ...]) -> str:
    return how.replace("was killed", "were killed", 1) if len(ranks) > 1 else how


def _victims(dead: set[int], failures: Failures, waits: Waits) -> tuple[int, ...]:
    """List who lost these ranks or still waits for them, and those who lost the victims."""
    victims: set[int] = set()
    gone = set(dead)
    while gone:
        more = {
            rank
            for rank, errors in failures.items()
            if any(gone & set(error.named) for error in errors)
        }
        more |= {r for r, edges in waits.items() if any(gone & set(edge.on) for edge in edges)}
        gone = more - victims - dead
        victims |= gone
    return tuple(sorted(victims))


def _whom_it_kept(
    session: Session,
    ranks: tuple[int, ...],
    failures: Failures,
    waits: Waits,
) -> str:
    """' while ranks 0,1,3 waited for it in reduce_scatter #310 on group 'world''."""
    places: dict[str, list[int]] = defaultdict(list)
    for rank, edges in sorted(waits.items()):
        for edge in edges:
            if set(ranks) & set(edge.on):
                places[session.name_of(edge.op) if edge.op else edge.text].append(rank)
    if not places:
        for rank, errors in sorted(failures.items()):
            for error in errors:
                if error.op and set(ranks) & set(error.named) and rank not in ranks:
                    places[session.name_of(error.op)].append(rank)
    if not places:
        return ""
    place = max(places, key=lambda name: len(places[name]))
    whom = "it" if len(ranks) == 1 else "them"
    return f" while {say_ranks(places[place], 3)} waited for {whom} in {place}"


def _evidence(session: Session, one: RankEnding) -> list[Evidence]:
    host = session.ranks[one.rank].host
    process = f" (host {host}, pid {session.ranks[one.rank].pid})" if host else ""
    found = [
        Evidence(
            text=f"rank {one.rank} {one.how}{process}",
            rank=one.rank,
            site=one.where,
            at_ns=known_ns(one.at_ns),
        )
    ]
    found += [Evidence(text=note, rank=one.rank) for note in session.ranks[one.rank].exit_notes]
    if one.end is not None and one.reason and one.end.how not in one.how:
        text = f"the process of rank {one.rank} {one.end.how}"
        at_ns = known_ns(session.time_ns(one.rank, one.end.ended_ns))
        found.append(Evidence(text=text, rank=one.rank, at_ns=at_ns))
    is_out = one.reason.startswith("MemoryError")
    is_out |= one.end is not None and one.end.signal == signal.SIGKILL
    if one.end is not None and is_out and one.end.max_rss_nbytes:
        counted = ""
        if one.end.cause == "signal" and one.end.by == "launcher":  # which looks for every SIGKILL
            counted = "; the kernel's OOM killer did not end it"
        used = nbytes_text(one.end.max_rss_nbytes)
        share = _share(session, one)
        others = f", {share.text}" if share else ""
        text = f"rank {one.rank} had used {used} of memory at most{others}{counted}"
        found.append(Evidence(text=text, rank=one.rank))
    call = exit_call(session, one.rank)
    if call is not None and not one.reason:
        found.append(call)
    last = last_op(session, one.rank)
    if last is not None:
        found.append(last)
    return found


def _share(session: Session, one: RankEnding) -> MemoryShare | None:
    ends = [log.end for log in session.ranks.values() if log.end is not None]
    has_raised = one.reason.startswith("MemoryError")
    is_killed = one.end is not None and one.end.cause == "signal" and not one.reason
    if one.end is None or not (is_killed or has_raised):
        return None
    return its_share(one.end, ends, has_raised=has_raised)


def _struck(session: Session, same: Sequence[RankEnding]) -> list[Evidence]:
    """Ranks that one signal has killed: what they were in, those that were in the same together."""
    ranks = tuple(sorted(one.rank for one in same))
    took_ns = same[-1].at_ns - same[0].at_ns
    text = f"{say_ranks(ranks)} {_plural(same[0].how, ranks)}, the last {say_s(took_ns)} after the first"
    found = [Evidence(text=text, rank=ranks[0], ranks=ranks, at_ns=known_ns(same[0].at_ns))]
    places: dict[tuple[str, str], list[Evidence]] = defaultdict(list)
    for rank in ranks:
        last = last_op(session, rank)
        if last is not None:
            places[last.text.removeprefix(f"rank {rank} "), last.site].append(last)
    for (doing, _), alike in list(places.items())[:8]:
        whose = tuple(one.rank for one in alike if one.rank is not None)
        doing = doing.replace("was in", "were in", 1) if len(whose) > 1 else doing
        found.append(replace(alike[0], text=f"{say_ranks(whose)} {doing}", ranks=whose))
    return found


def _losses(ranks: tuple[int, ...], failures: Failures) -> list[Evidence]:
    found = []
    for rank, errors in sorted(failures.items()):
        for error in errors:
            if set(ranks) & set(error.named) and rank not in ranks and error.what:
                text = f"rank {rank}: {error.type}: {error.what}"
                found.append(
                    Evidence(text=text, rank=rank, op=error.op, at_ns=known_ns(error.at_ns))
                )
                break
    return found[:_MAX_VICTIMS_TOLD]


def _advice(session: Session, one: RankEnding, *, is_alone: bool = True) -> str:
    end = one.end
    if not one.reason and (site := exit_site(session, one.rank)):
        return f"see why {site} ends the process"
    if one.reason.startswith("MemoryError"):
        return MORE_MEMORY
    if end is not None and one.where and not one.reason and end.signal != signal.SIGBUS:
        text = f"native code that {one.where} calls crashed: look there, or into a core dump (ulimit -c)"
        return Advice(text, *((Trait.CRASHED,) if end.signal == signal.SIGSEGV else ()))
    if end is not None and end.hint and (end.cause == "oom" or not one.reason):
        if end.signal == signal.SIGPIPE:
            return Advice(end.hint, Trait.OF_PIPE)
        return Advice(end.hint, *((Trait.SENDER_UNKNOWN,) if end.is_sender_unknown else ()))
    if one.hint:
        return one.hint
    if one.where and one.reason.startswith("RecursionError"):
        why = f"either it calls itself without end, or the data of rank {one.rank} is too deep"
        return f"look at {one.where}: {why}"
    if one.where:
        text = f"look at {one.where}" + (f" on {say_ranks([one.rank])}" if is_alone else "")
        return Advice(text, Trait.OWN_ERROR) if one.reason else text
    return f"look at the last lines of stderr of rank {one.rank}"


def _lost(session: Session, failures: Failures, endings: Endings) -> dict[int, list[Failure]]:
    """Ranks that others lost, and of whose end nothing is known."""
    found: dict[int, list[Failure]] = defaultdict(list)
    for errors in failures.values():
        for error in errors:
            if error.type != "PeerLost" or error.went_on:
                continue
            for rank in error.named:
                log = session.ranks.get(rank)
                if rank not in endings and not (log is not None and log.is_gone):
                    if failures.get(rank) and not failures[rank][-1].went_on:
                        continue  # it had failed itself, and says why
                    found[rank].append(error)
    return dict(sorted(found.items()))


def _lost_finding(session: Session, rank: int, by: list[Failure], waits: Waits) -> Finding:
    by = sorted(by, key=lambda error: (error.at_ns, error.rank))
    losers = tuple(sorted({error.rank for error in by}))
    how = by[0].how or "is gone"
    last = last_op(session, rank)
    evidence = [
        Evidence(
            text=f"rank {e.rank}: {e.type}: {e.what or how}",
            rank=e.rank,
            op=e.op,
            at_ns=known_ns(e.at_ns),
        )
        for e in by[:_MAX_VICTIMS_TOLD]
    ]
    return Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what=fit(
            f"rank {rank} was lost by {say_ranks(losers)}: {how}",
            "; nobody saw how its process ended",
        ),
        ranks=(rank,),
        victims=tuple(sorted(set(losers) | {r for r, e in waits.items() if _needs(e, rank)})),
        at_ns=known_ns(by[0].at_ns),
        evidence=(*evidence, *([last] if last else [])),
        advice=f"look at the host of rank {rank} and the last lines of its stderr",
    )


def _needs(edges: tuple[Edge, ...], rank: int) -> bool:
    return any(rank in edge.on for edge in edges)


class _UnlikeModels(NamedTuple):
    """The words of a finding about models that differ."""

    odd: tuple[int, ...]
    others: tuple[int, ...]
    what: str
    advice: Advice


def find_unlike_models(reasons: Mapping[int, str]) -> _UnlikeModels | None:
    """Compare models by why ranks failed; None where none says so, or no model is that of most ranks."""
    counts: dict[int, int] = {}
    for reason in reasons.values():
        if reported := _TOLD.search(reason):
            rank, count, other, others_count = map(int, reported.groups())
            counts |= {rank: count, other: others_count}
    usual = Counter(counts.values()).most_common(2)
    if len(usual) < 2 or usual[0][1] == usual[1][1]:
        return None
    odd = tuple(sorted(rank for rank, count in counts.items() if count != usual[0][0]))
    others = tuple(sorted(counts.keys() - set(odd)))
    differ = ", ".join(
        f"{say_ranks(ranks)} {verb(ranks, 'has', 'have')} {count}"
        for count in sorted({counts[rank] for rank in odd})
        for ranks in [[rank for rank in odd if counts[rank] == count]]
    )
    what = (
        f"the models for DDP differ: {differ} parameters that require grad, "
        f"{say_ranks(others)} {verb(others, 'has', 'have')} {usual[0][0]}"
    )
    advice = Advice(
        f"see what makes the model of {say_ranks(odd)} another one: requires_grad, or its settings",
        Trait.MODELS_DIFFER,
    )
    return _UnlikeModels(odd, others, what, advice)
