"""Plays a job of tensor- and data-parallel ranks with the noise of real ones, as a session.

    session = play(Noise(jitter=0.4, pauses=0.01), ranks=8, steps=60, seed=3)
    session = play(Noise(), ranks=8, slow={3: 1.5}, slow_from=20)

A step is two all_reduce on the rank's 'tp' group, two begun on its 'dp' group and awaited, and one on
'world'; each is preceded by about 10 ms of own code. An op begins when its last rank has come. Nothing
here is true to any network; what is true is who waits for whom.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import GroupProgress, Session
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag
from distdbg.record.forms import read_form
from tests.support.session_builder import SessionBuilder

_ALL_REDUCE: Final = KIND_LABELS.index("all_reduce")
_MS: Final = 1_000_000
_OWN_NS: Final = 10 * _MS
_TRANSFER_NS: Final = _MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What befalls ranks that are well; shares are of ops."""

    jitter: float = 0.1
    """Sigma of the log-normal by which own code varies."""
    pauses: float = 0.0
    """How often a rank stands still for 50 to 500 ms."""
    stalls: float = 0.0
    """How often it collects garbage, for 20 ms."""
    checkpoint_every: int = 0
    """After so many steps rank 0 writes for 1 s."""
    warm_up_ns: int = 500 * _MS
    """What the first op of each rank takes longer, at most."""
    slots: int = 0
    """Ranks for each core: a rank goes on when its turn comes, after so many times 4 ms."""
    uneven: float = 0.0
    """How far own code is from the same on all ranks, anew in each step."""
    skew_ns: int = 0
    """How wrong the clocks of hosts are, at most; the session is told."""


@dataclass(slots=True)
class _Job:
    build: SessionBuilder
    noise: Noise
    random: random.Random
    slow: Mapping[int, float]
    slow_from: int
    clock: list[int]
    seqs: dict[tuple[int, int], int] = field(default_factory=dict)
    free_ns: dict[int, int] = field(default_factory=dict)
    site: int = 0

    def own(self, rank: int, step: int, uneven: float) -> None:
        """The rank computes."""
        noise, chance = self.noise, self.random
        took = _OWN_NS * chance.lognormvariate(0, noise.jitter) * uneven
        if rank in self.slow and step >= self.slow_from:
            took *= self.slow[rank]
        if chance.random() < noise.pauses:
            took += chance.uniform(50, 500) * _MS
        if chance.random() < noise.stalls:
            took += 20 * _MS
        now = self.clock[rank] + int(took)
        if noise.slots > 1:
            now += chance.randrange(noise.slots) * 4 * _MS
        self.clock[rank] = now

    def op(self, group: int, ranks: Sequence[int], *, is_async: bool = False) -> int:
        """All of `ranks` come; returns when it ends."""
        start = max(max(self.clock[rank] for rank in ranks), self.free_ns.get(group, 0))
        end = start + int(_TRANSFER_NS * self.random.lognormvariate(0, self.noise.jitter))
        self.free_ns[group] = end
        self.site += 1
        for rank in ranks:
            seq = self.seqs[rank, group] = self.seqs.get((rank, group), 0) + 1
            log = self.build.session.ranks[rank]
            log.ops.append(
                number=len(log.ops) + 1,
                issued_ns=self.clock[rank] - log.offset_ns,
                started_ns=start - log.offset_ns,
                ended_ns=end - log.offset_ns,
                seq=seq,
                group=group,
                kind=_ALL_REDUCE,
                flags=Flag.ASYNC if is_async else 0,
                status=0,
                form=1,
                stack=self.site,
                thread=log.pid,
            )
            log.progress[group] = GroupProgress(issued_seq=seq, ended_seq=seq)
            if not is_async:
                self.clock[rank] = end + 20_000
        return end


def play(
    noise: Noise,
    *,
    ranks: int,
    steps: int = 60,
    seed: int = 0,
    slow: Mapping[int, float] | None = None,
    slow_from: int = 0,
    width: int = 2,
    hosts: int = 1,
    clocks: bool = True,
) -> Session:
    """`slow`: how many times as long the own code of a rank takes; `width`: ranks of a 'tp' group."""
    build = SessionBuilder(world_size=ranks)
    job = _Job(build, noise, random.Random(seed), slow or {}, slow_from, [1_000 * _MS] * ranks)
    _set_hosts(job, hosts, clocks=clocks)
    build.session.forms.append(
        read_form(b'{"name":"all_reduce","kind":"all_reduce","dtype":"float32","nbytes":4096}')
    )
    for line in range(6):
        build.stack(f"train.py:{80 + line} (step)")
    tensor = [range(at, at + width) for at in range(0, ranks - width + 1, width)] * (width > 1)
    data = [range(at, ranks, width) for at in range(width)] * (ranks > width)
    groups = {
        tuple(each): build.group(f"{name}{at}", tuple(each))
        for name, many in (("tp", tensor), ("dp", data))
        for at, each in enumerate(many)
    }
    for rank in range(ranks):
        job.clock[rank] += int(job.random.uniform(0, noise.warm_up_ns))
    for step in range(steps):
        _play_step(
            job, groups, [tuple(each) for each in tensor], [tuple(each) for each in data], step
        )
    build.session.now_ns = max(job.clock)
    return build.session


def _set_hosts(job: _Job, hosts: int, *, clocks: bool) -> None:
    logs = job.build.session.ranks
    if hosts == 1:
        return
    skew = [job.random.randint(-job.noise.skew_ns, job.noise.skew_ns) for _ in range(hosts)]
    for rank, log in logs.items():
        host = rank * hosts // len(logs)
        log.host = f"n{host:02}"
        # What the session adds is wrong by the skew, and the truth is within the error.
        log.clock_error_ns = job.noise.skew_ns if clocks else None
        log.offset_ns = 0
        job.clock[rank] += skew[host]


def _play_step(
    job: _Job,
    groups: Mapping[tuple[int, ...], int],
    tensor: Sequence[tuple[int, ...]],
    data: Sequence[tuple[int, ...]],
    step: int,
) -> None:
    ranks = range(len(job.clock))
    uneven = [1 + job.random.uniform(0, job.noise.uneven) for _ in ranks]
    for rank in ranks:
        job.build.mark(rank, "step", step, at_s=job.clock[rank] / 1e9)
    for line in (1, 2):
        for rank in ranks:
            job.own(rank, step, uneven[rank])
        for each in tensor:
            job.site = line - 1
            job.op(groups[each], each)
    ends = [NEVER] * len(ranks)
    for line in (3, 4):
        for rank in ranks:
            job.own(rank, step, uneven[rank])
        for each in data:
            job.site = line - 1
            end = job.op(groups[each], each, is_async=True)
            for rank in each:
                ends[rank] = max(ends[rank], end)
    for rank in ranks:
        job.clock[rank] = max(job.clock[rank], ends[rank])
        job.own(rank, step, uneven[rank])
        if rank == 0 and job.noise.checkpoint_every and step % job.noise.checkpoint_every == 5:
            job.clock[rank] += 1_000 * _MS
    job.site = 4
    job.op(0, ranks)
