"""One rank as facts for its metrics: how its process is, as the agent sees it, and what its record counts.

The label `check` says in one word what a rank wrote of an error or a finding:

    mismatch        ranks called different things        rank_left    one left while others waited for it
    nonfinite       NaN or Inf in an input               peer_lost    one is gone
    buffer_changed  an array changed while an op had it  timeout      an op did not end in time
    diverged        what must be equal is not            aborted      somebody ended the job
    suspicion       noticed, and not forbidden           other        any other error of an op

Latent errors (leaked work, leaked groups, buffer and message races) are suspicions too.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from distdbg import __version__
from distdbg.errors import RecordError
from distdbg.export.metrics.bounds import group_label
from distdbg.export.metrics.samples import AgentFacts, OpCount, RankSample
from distdbg.follow.findings import read_words
from distdbg.follow.processes import read_stat
from distdbg.record.entries import Group, OpEntry, label_of_kind
from distdbg.record.known_marks import EXIT_CALL, SOURCE_DROPPED
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.follow.roster import Roster
    from distdbg.follow.tail import TailedRecord
    from distdbg.follow.watched_rank import WatchedRank

#: Groups that a rank may make before it is read again. A record has 512 counters, and those of closed groups
#: give way to others.
_MAX_NEW_GROUPS = 32

#: Ops in flight that are read, each time again: the oldest.
_MAX_LASTING = 64
_DEAD = (RankState.FAILED, RankState.DEAD)


OTHER: Final = "other"
SUSPICION: Final = "suspicion"
CHECKS: Final = {
    "MismatchError": "mismatch",
    "NonFiniteError": "nonfinite",
    "BufferChangedError": "buffer_changed",
    "DivergedError": "diverged",
    "Suspicion": SUSPICION,
    "RankLeft": "rank_left",
    "PeerLost": "peer_lost",
    "OpTimeout": "timeout",
    "JobAborted": "aborted",
}
_LATENT: Final = ("LeakedWork", "LeakedGroup", "BufferRace", "MessageRace")


@dataclass(slots=True)
class _Known:
    """What does not have to be read again of one life of a rank."""

    life: tuple[int, int]
    labels: dict[int, str] = field(default_factory=dict)
    """The labels of its groups, by their numbers."""
    text_count: int = 0
    group_count: int = 0
    """How many it had made when it was read last."""
    found: dict[str, int] = field(default_factory=dict)


def read_agent_facts(*, began_s: float, collect_s: float, hosts_missing: int | None) -> AgentFacts:
    """The facts of this process, which serves the metrics."""
    stat = read_stat(os.getpid())
    return AgentFacts(
        version=__version__,
        python=platform.python_version(),
        began_s=began_s,
        cpu_s=time.process_time(),
        rss_nbytes=stat.rss_nbytes if stat is not None else None,
        collect_s=collect_s,
        hosts_missing=hosts_missing,
    )


class RankReader:
    """Reads the ranks of one host; a short read of each table of theirs."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def read(
        self, roster: Roster, now_ns: int, suspicions: Mapping[int, int] | None = None
    ) -> tuple[RankSample, ...]:
        """All ranks, by rank; `suspicions`: how many the agent itself has found of each."""
        roster.freshen(now_ns)
        more = suspicions or {}
        return tuple(
            self._read(watched, now_ns, more.get(rank, 0))
            for rank, watched in sorted(roster.watched_ranks.items())
        )

    def is_due(self, roster: Roster) -> bool:
        """Whether a rank makes so many groups that counters of closed ones may be lost unread."""
        for watched in roster.watched_ranks.values():
            known = self._known.get(watched.rank)
            seen = (
                known.group_count if known and known.life == (watched.attempt, watched.pid) else 0
            )
            if (
                watched.record is not None
                and watched.record.group_count() - seen >= _MAX_NEW_GROUPS
            ):
                return True
        return False

    def _read(self, watched: WatchedRank, now_ns: int, suspicions: int) -> RankSample:
        life = (watched.attempt, watched.pid)
        known = self._known.get(watched.rank)
        if known is None or known.life != life:
            known = self._known[watched.rank] = _Known(life)
        counters: list[OpCount] | None = None
        seqs: dict[str, int] = {}
        lost: Mapping[str, int] = {}
        in_flight = 0
        lasting_ns = (0, 0)
        if watched.record is not None:
            try:
                known.group_count = watched.record.group_count()  # before those are read
                self._look_for_words(watched.record, known)
                seqs, in_flight = _progress(watched.record, known)
                lost = _lost(watched.record)
                counters = _counters(watched.record, known)
                lasting_ns = _lasting(watched, watched.record, now_ns)
            except RecordError:
                counters = None  # it is found again, or it is gone
        is_over = watched.state.is_over
        # Whoever the launcher ends, because another one failed or it was told to, has not died of itself.
        state = (
            RankState.ENDED if watched.end is not None and watched.end.was_asked else watched.state
        )
        state = RankState.WAITING if watched.is_joining else state
        if watched.is_gone:
            in_flight = 0
        elif watched.current_ops is not None and watched.is_exact:
            in_flight = len(watched.current_ops.in_flight)  # it does not move: all is known of it
        found = dict(known.found)
        if suspicions:
            found[SUSPICION] = found.get(SUSPICION, 0) + suspicions
        return RankSample(
            rank=watched.rank,
            is_up=not is_over,
            is_dead=state in _DEAD,
            state=state,
            in_flight=in_flight,
            lasting_ns=lasting_ns,
            since_progress_s=max(0, now_ns - watched.progress_ns) / 1e9,
            seqs=seqs,
            cpu_s=watched.stat.cpu_s if watched.stat is not None else None,
            rss_nbytes=watched.stat.rss_nbytes
            if watched.stat is not None and not is_over
            else None,
            counters=counters,
            found=found,
            lost=lost,
            life=life,
        )

    def _look_for_words(self, record: TailedRecord, known: _Known) -> None:
        count = record.pulse().text_count
        if count <= known.text_count:
            return
        for _, text in record.texts(known.text_count):
            check = check_of(read_words(text))
            if check is not None:
                known.found[check] = known.found.get(check, 0) + 1
        known.text_count = count


def label_of(group: Group) -> str:
    """How a group is called in metrics."""
    return group_label(group.desc, group.name, group.size)


def _progress(record: TailedRecord, known: _Known) -> tuple[dict[str, int], int]:
    """The op called last by label of its open groups, and how many have been called and have not ended.

    Messages are not among these: to count them takes a look at each of the last thousands of ops.
    """
    seqs: dict[str, int] = {}
    in_flight = 0
    for group, far in record.groups():
        label = known.labels.get(group.number)
        if label is None:
            label = known.labels[group.number] = label_of(group)
        if far.closed_ns is None:
            seqs[label] = max(seqs.get(label, 0), far.issued_seq)
            in_flight += max(0, far.issued_seq - far.ended_seq)
    return seqs, in_flight


def _lasting(watched: WatchedRank, record: TailedRecord, now_ns: int) -> tuple[int, int]:
    """How long the ops in flight have waited for their last ranks, and have gone on since.

    Of a rank that moves it is not known which they are, and they are over in a moment. Of one that is gone
    they last until its end, or its last sign where nobody saw that. To be called after the counters were
    read: an op that has not ended now was in none of them.
    """
    if watched.end is not None:
        is_seen = watched.end.cause != "unknown"
        now_ns = min(now_ns, watched.end.ended_ns if is_seen else record.pulse().heartbeat_ns)
        ops = record.current_ops().in_flight
    elif watched.current_ops is not None and watched.is_exact and not watched.is_gone:
        ops = watched.current_ops.in_flight
    else:
        return 0, 0
    late_ns = transfer_ns = 0
    for known in ops[:_MAX_LASTING]:
        op = record.event(known.number)
        if not isinstance(op, OpEntry) or op.ended_ns is not None or op.group is None:
            continue
        started_ns = now_ns if op.started_ns is None else min(op.started_ns, now_ns)
        late_ns += max(0, started_ns - op.issued_ns)
        transfer_ns += max(0, now_ns - started_ns)
    return late_ns, transfer_ns


def _counters(record: TailedRecord, known: _Known) -> list[OpCount]:
    found = []
    for counter in record.counters():
        if not counter.ended:
            continue
        group = record.group(counter.group)
        if group is None:
            continue
        label = known.labels.get(group.number)
        if label is None:
            label = known.labels[group.number] = label_of(group)
        found.append(
            OpCount(
                group=label,
                group_size=group.size,
                kind=label_of_kind(counter.kind) or f"kind {counter.kind}",
                dtype=counter.dtype,
                ended=counter.ended,
                failed=counter.failed,
                nbytes=counter.nbytes,
                duration_ns=counter.duration_ns,
                wait_ns=counter.wait_ns,
                longest_ns=counter.longest_ns,
                duration_buckets=counter.duration_buckets,
                wait_buckets=counter.wait_buckets,
                instance=counter.group,
            )
        )
    return found


def _lost(record: TailedRecord) -> dict[str, int]:
    state = record.state()
    return {
        "strings": state.lost_strings,
        "sites": state.lost_sites,
        "parked_ops": state.lost_parked,
        "waits": state.lost_waits,
        "counters": state.lost_counters,
    }


def check_of(words: Mapping[str, Any]) -> str | None:
    """The label of what `findings.read_words` gives; None for what is no error of an op."""
    kind = words.get("type")
    if not kind or kind in (SOURCE_DROPPED, EXIT_CALL):
        return None
    return SUSPICION if kind in _LATENT else CHECKS.get(str(kind), OTHER)
