"""`python -m benchmarks.agent_tree`: what the agents of a large job cost the root, and how late it is.

The nodes of the tree (`distdbg.hosts.node`) run in one process on a clock that is only a number; links
take a millisecond and lose nothing, and the bytes that would go over them are counted. Each host has 8
ranks and looks at them 10 times a second.

    lock step   all ranks of the job are in the same op, a new one at each look
    worst case  at each look every rank has come further, by a number, to a state and to a line that
                have nothing to do with those of its neighbour

`late` is the age of what the root shows: the time since its host looked. The looks themselves are up to
0.1 s apart.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.table import align
from distdbg.hosts.node import Node
from distdbg.hosts.parent_choice import FAN_IN, parent
from distdbg.hosts.status_rows import RankStatusRow

S = 1_000_000_000
MS = 1_000_000
LOOK_NS = 100 * MS
FRAME_NBYTES = 4
LOCAL_RANKS = 8

Load = Callable[[int, int], tuple[int, int, int]]
"""(rank, look) -> op number, state, line."""
OPS_PER_LOOK = 64


def lock_step(rank: int, look: int) -> tuple[int, int, int]:
    return look * OPS_PER_LOOK, 2, 0


def worst_case(rank: int, look: int) -> tuple[int, int, int]:
    chance = hash((rank, look))  # of numbers: the same in every process
    return look * OPS_PER_LOOK + chance % OPS_PER_LOOK, chance // 64 % 2 + 1, chance // 128 % 23


@dataclass(slots=True)
class Simulation:
    """All nodes of a job, on one clock; each may have its own that differs by `skew_ns`."""

    nodes: list[Node]
    latency_ns: Callable[[int, int], int] = lambda sender, receiver: MS
    skew_ns: list[int] = field(default_factory=list)
    now_ns: int = 0
    received: dict[int, int] = field(default_factory=dict)
    """Node -> bytes that came from its children."""
    dead: set[int] = field(default_factory=set)
    _queue: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    _wakes: dict[int, int] = field(default_factory=dict)
    _order: int = 0
    _latest: dict[tuple[int, int], int] = field(default_factory=dict)

    def local_ns(self, node: int) -> int:
        return self.now_ns + (self.skew_ns[node] if self.skew_ns else 0)

    def connect(self, child: int, to: int) -> None:
        """A link is the number of the node at its other end."""
        self.nodes[to].attach_child(child)
        self.nodes[child].attach_parent(to, self.local_ns(child))
        self.wake(child)
        self.wake(to)

    def cut(self, child: int, from_: int) -> None:
        self.nodes[from_].detach(child, self.local_ns(from_))
        self.nodes[child].detach(from_, self.local_ns(child))
        self.wake(child)
        self.wake(from_)

    def drop_messages(self, one: int, other: int) -> None:
        """What is under way between these two never arrives: their link is gone."""
        self._queue = [
            entry
            for entry in self._queue
            if (entry[2], entry[3]) not in ((one, other), (other, one))
        ]
        heapq.heapify(self._queue)
        self._latest.pop((one, other), None)
        self._latest.pop((other, one), None)

    def kill(self, node: int) -> None:
        """All of its links end; its children are where they were, without one."""
        self.dead.add(node)
        for other in range(len(self.nodes)):
            if other != node and (
                self.nodes[other].parent == node or node in self.nodes[other].rows.links
            ):
                self.nodes[other].detach(node, self.local_ns(other))
                self.wake(other)

    def wake(self, node: int) -> None:
        self._push(self.now_ns, node, -1, b"")

    def _push(self, at_ns: int, node: int, sender: int, message: bytes) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at_ns, self._order, node, sender, message))

    def run(self, until_ns: int) -> None:
        while self._queue and self._queue[0][0] <= until_ns:
            at_ns, _, number, sender, message = heapq.heappop(self._queue)
            self.now_ns = at_ns
            node = self.nodes[number]
            if number in self.dead:
                continue
            local_ns = self.local_ns(number)
            if sender >= 0:
                if sender != node.parent:
                    nbytes = len(message) + FRAME_NBYTES
                    self.received[number] = self.received.get(number, 0) + nbytes
                node.receive(sender, message, local_ns)
            elif self._wakes.get(number) == at_ns:
                del self._wakes[number]
            for link, out in node.send(local_ns):
                if link in self.dead:
                    continue
                # A link keeps its order, as TCP does.
                arrival = at_ns + self.latency_ns(number, link)
                arrival = max(arrival, self._latest.get((number, link), 0))
                self._latest[number, link] = arrival
                self._push(arrival, link, number, out)
            due_ns = max(node.due_ns(local_ns) - local_ns + at_ns, at_ns + MS)
            if due_ns < self._wakes.get(number, 1 << 62):
                self._wakes[number] = due_ns
                self._push(due_ns, number, -1, b"")
        self.now_ns = until_ns


def make_tree(count: int, *, fan_in: int = FAN_IN, skew_ns: list[int] | None = None) -> Simulation:
    """All nodes, connected as they are when nobody is missing."""
    nodes = [Node(node, f"host{node}") for node in range(count)]
    simulation = Simulation(nodes, skew_ns=skew_ns or [])
    for node in range(1, count):
        simulation.connect(node, parent(node, fan_in))
    return simulation


def make_row(load: Load, rank: int, look: int, now_ns: int) -> RankStatusRow:
    number, state, site = load(rank, look)
    return RankStatusRow(
        node=rank // LOCAL_RANKS, attempt=0, pid=1000 + rank % LOCAL_RANKS, state=state,
        state_since_ns=now_ns, why="", op="all_reduce # on group 'dp'", op_number=number,
        site=f"train.py:{80 + site} (step)", last_number=number, progress_since_ns=now_ns,
        groups="world\x1fdp", seqs=(3, number), cpu=look, rss=100 + look // 50,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one simulation showed."""

    agents: int
    load: str
    root_nbytes_s: float
    """Over the time measured."""
    most_nbytes_s: float
    """Of the busiest whole second, the first ones included."""
    late_s: float
    worst_late_s: float
    cpu_s_per_s: float
    """Of this process, for the root alone."""


def measure(agents: int, load: Load, *, seconds: float = 4.0, warmup_s: float = 3.0) -> Measured:
    """Let the ranks run and look at what the root knows, every 0.05 s."""
    # The garbage of all nodes would be collected at the expense of one.
    gc.collect()
    gc.disable()
    try:
        return _measure(agents, load, seconds, warmup_s)
    finally:
        gc.enable()


def _measure(agents: int, load: Load, seconds: float, warmup_s: float) -> Measured:
    simulation = make_tree(agents)
    root = simulation.nodes[0]
    # Hosts do not look at the same time.
    chance = random.Random(1)
    phases = [chance.randrange(LOOK_NS) for _ in range(agents)]
    reports = [(phases[node], node, 0) for node in range(agents)]
    heapq.heapify(reports)
    cpu_ns = 0

    def timed(method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal cpu_ns
            begin = time.thread_time_ns()
            try:
                return method(*arguments)
            finally:
                cpu_ns += time.thread_time_ns() - begin

        return call

    receive = timed(root.receive)

    class TimedRoot(Node):
        """Only the root pays for what the root hears."""

        def receive(self, *arguments: object) -> None:  # type: ignore[override]
            receive(*arguments)

    root.__class__ = TimedRoot
    lates: list[float] = []
    worst_s = 0.0
    seen_ns = int(warmup_s * S)
    end_ns = int((warmup_s + seconds) * S)
    marks: list[int] = []
    second_ns = S
    begun = (0, 0)
    while seen_ns <= end_ns:
        while reports[0][0] <= min(seen_ns, second_ns):
            at_ns, node, look = heapq.heappop(reports)
            simulation.run(at_ns)
            ranks = range(node * LOCAL_RANKS, (node + 1) * LOCAL_RANKS)
            rows = {rank: make_row(load, rank, look, at_ns) for rank in ranks}
            simulation.nodes[node].report_rows(rows, at_ns)
            simulation.wake(node)
            heapq.heappush(reports, (at_ns + LOOK_NS, node, look + 1))
        simulation.run(min(seen_ns, second_ns))
        if simulation.now_ns >= second_ns:
            marks.append(simulation.received.get(0, 0))
            second_ns += S
        if simulation.now_ns < seen_ns:
            continue
        if seen_ns == int(warmup_s * S):
            begun = (simulation.received.get(0, 0), cpu_ns)
        ages = [
            seen_ns - phases[row.node] - row.op_number // OPS_PER_LOOK * LOOK_NS
            for row in root.rows.ranks.values()
        ]
        if len(ages) < agents * LOCAL_RANKS:
            worst_s = float("inf")
        else:
            worst_s = max(worst_s, max(ages) / S)
            lates.append(sum(ages) / len(ages) / S)
        seen_ns += LOOK_NS // 2
    passed_s = (simulation.now_ns - int(warmup_s * S)) / S
    return Measured(
        agents=agents,
        load=load.__name__.replace("_", " "),
        root_nbytes_s=(simulation.received.get(0, 0) - begun[0]) / passed_s,
        most_nbytes_s=max(b - a for a, b in zip([0, *marks], marks, strict=False)),
        late_s=sum(lates) / max(1, len(lates)),
        worst_late_s=worst_s,
        cpu_s_per_s=(cpu_ns - begun[1]) / S / passed_s,
    )


def format_measured(found: Sequence[Measured]) -> str:
    lines = [
        ["agents", "ranks", "load", "root hears", "busiest second", "late", "worst", "root CPU"]
    ]
    lines += (
        [
            f"{one.agents:,}",
            f"{one.agents * LOCAL_RANKS:,}",
            one.load,
            f"{one.root_nbytes_s / 1000:.0f} kB/s",
            f"{one.most_nbytes_s / 1000:.0f} kB/s",
            f"{one.late_s:.2f} s",
            f"{one.worst_late_s:.2f} s",
            f"{one.cpu_s_per_s:.0%}",
        ]
        for one in found
    )
    return align(lines, left=(2,))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_tree", description=__doc__)
    parser.add_argument("--agents", default="8,64,512,4096", help="how many hosts")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the clock that is a number")
    args = parser.parse_args(argv)
    found = []
    for count in map(int, args.agents.split(",")):
        for load in (lock_step, worst_case):
            found.append(measure(count, load, seconds=args.seconds))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(format_measured(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
