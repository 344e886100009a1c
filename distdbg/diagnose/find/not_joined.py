"""Ranks that never reached the making of the first group, while the others waited there for them.

They have no record and no op; those that gave up name them in words alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from distdbg.diagnose.doing import doing_of
from distdbg.diagnose.endings import Endings, EndRole, RankEnding, endings_of
from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import fit, known_ns, say_ranks
from distdbg.record.join_calls import too_many
from distdbg.record.rank_list import read_ranks

_MISSING: Final = re.compile(
    r"^RendezvousError: \d+ of (\d{1,7}) ranks joined .{0,300}? within ([\d.a-z ]{1,40}); "
    r"missing ranks? ([\d,-]{1,80}\d|\d)"
)
_LIMIT: Final = 8


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """One finding for all that miss the same ranks."""
    endings = endings_of(session, failures_of(session))
    alike: dict[str, list[RankEnding]] = defaultdict(list)
    said: dict[str, re.Match[str]] = {}
    for one in endings.values():
        words = _MISSING.match(one.reason)
        if words is not None and one.part is EndRole.SUSPECT:
            alike[words[3]].append(one)
            said.setdefault(words[3], words)
    return [
        _finding(session, said[text], gave_up, endings)
        for text, gave_up in alike.items()
        if _ranks_in(said[text])
    ]


def _ranks_in(words: re.Match[str]) -> tuple[int, ...]:
    try:
        return tuple(rank for rank in read_ranks(words[3]) if rank < int(words[1]))
    except ValueError:  # of a record that is no record of ours
        return ()


def _finding(
    session: Session,
    words: re.Match[str],
    gave_up: list[RankEnding],
    endings: Endings,
) -> Finding:
    missing = _ranks_in(words)
    victims = tuple(one.rank for one in gave_up)
    first = min(gave_up, key=lambda one: (one.at_ns == NEVER, one.at_ns, one.rank))
    # Where each was before its end; that tells more than how it was ended then.
    doings = {
        rank: doing
        for rank in missing[:_LIMIT]
        if rank in session.ranks and (doing := doing_of(session, rank)).text
    }
    evidence = [
        Evidence(text=f"rank {rank} was {doing.text}", rank=rank) for rank, doing in doings.items()
    ]
    evidence += [
        Evidence(text=f"rank {rank} {endings[rank].how}", rank=rank)
        for rank in missing[:_LIMIT]
        if rank in endings
    ]
    evidence += [
        Evidence(text=f"rank {one.rank} raised {one.reason}", rank=one.rank, site=one.where)
        for one in gave_up[:_LIMIT]
    ]
    join = session.ranks[first.rank].join
    too_many_ranks = too_many(join.world_size, join.started) if join is not None else ""
    it = "it" if len(missing) == 1 else "them"
    is_known = len(missing) == 1 and missing[0] in doings
    only = f", {doings[missing[0]].text}" if is_known else ""
    return Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.ERROR,
        what=fit(
            f"{say_ranks(missing)} never joined{only}; {say_ranks(victims)} waited {words[2]} for {it}",
            f" at {first.where}" if first.where else "",
        ),
        ranks=missing,
        victims=victims,
        at_ns=known_ns(first.at_ns),
        evidence=tuple(evidence),
        advice=Advice(too_many_ranks, Trait.WORLD_SIZE, Trait.HOLDS_ALWAYS)
        or f"see what {say_ranks(missing)} did before init_process_group, or why it did not start",
        traits=frozenset(t for doing in doings.values() for t in doing.traits)
        | {Trait.NEVER_JOINED},
    )
