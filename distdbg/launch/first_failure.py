"""What a launcher reports about a failure of its ranks, and when it knows enough. Pure.

The ranks of one host fail because of those of another one as well, and only the launcher there learns
how those ended. So a launcher that has only victims waits for the others:

    some failed by themselves          0.25 s: others may fail by themselves at the same time
    all lost somebody, on one host     1 s: whoever that was may take so long to be gone
    all lost somebody, many hosts      until another launcher notes its failure, or is taken for dead
    ... that had ended well, early     0.25 s: no launcher will add more
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.rendezvous.notes import LauncherNote
from distdbg.launch.rendezvous.round import LauncherRound
from distdbg.launch.root_cause import find_root_cause

SETTLE_S: Final = 0.25
ROOT_CAUSE_S: Final = 1.0


def name_failure(
    evidence: Sequence[LostRankEvidence],
    *,
    since_s: float,
    has_running: bool,
    has_others: bool,
    ended_well: Collection[int],
    silence_s: float,
) -> str | None:
    """Say what failed here, `since_s` after the first did; None: it is not clear yet.

    `ended_well` are ranks of other hosts; after `silence_s` another launcher is taken for dead.
    """
    found = find_root_cause(evidence)
    if found is None:
        return None
    if not found.is_elsewhere:
        limit_s = SETTLE_S if has_running or has_others else 0.0
    elif not has_others:
        limit_s = ROOT_CAUSE_S if has_running else 0.0
    elif found.named and found.named <= set(ended_well):
        limit_s = SETTLE_S
    else:
        limit_s = silence_s + ROOT_CAUSE_S
    if since_s < limit_s:
        return None
    first = found.first[0]
    if has_others:
        return f"rank {first.rank} on host {first.end.host} failed first: it {found.how}"
    return f"rank {first.rank} {found.how}"


def find_ended_well(
    round_: LauncherRound, notes: Mapping[str, LauncherNote], left: Collection[int]
) -> frozenset[int]:
    """The ranks of which a launcher said so: one by one in `left`, or all of its host."""
    ranks = set(left)
    for node, here in round_.ranks_by_node():
        note = notes.get(node.name)
        if note is not None and note.kind == "finished":
            ranks.update(here)
    return frozenset(ranks)


def hosts_of_others(round_: LauncherRound) -> dict[int, str]:
    """Where the ranks run that are not this launcher's."""
    return {
        rank: node.host
        for node_rank, (node, ranks) in enumerate(round_.ranks_by_node())
        for rank in ranks
        if node_rank != round_.node_rank
    }
