"""The turns: within each, every case is measured on every subject, one after the other.

    round   fresh processes for all subjects of a contest, side by side; those not asked wait in a read
    turn    case by case, subject by subject, some bursts each
    burst   barrier, then iterations back to back; it counts as long as its slowest rank

So bursts with the same place in the lists of two subjects were measured within moments of each other.
Peers, which are hundreds of times slower, are asked in fewer turns and cannot be paired.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cases import Case
from benchmarks.launch import free_port
from benchmarks.overhead.contests import INIT, Contest, Subject
from benchmarks.overhead.rank_processes import RankProcesses, RankProcessesError


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    rounds: int = 4
    turns: int = 15
    bursts: int = 3
    burst_s: float = 0.002
    peer_every: int = 4
    """Peers are asked in every so many turns."""


@dataclass(slots=True)
class Samples:
    """What one contest gave."""

    contest: Contest
    times_s: dict[tuple[Case, str], list[float]] = field(default_factory=dict)
    """Case and name of the subject -> seconds per op of every burst."""


def run_contest(
    contest: Contest, effort: Effort, say: Callable[[str], None]
) -> tuple[Samples, str | None]:
    """Measure; with the reason if it ended before it was complete."""
    samples = Samples(contest)
    for number in range(1, effort.rounds + 1):
        say(f"{contest.name}, {contest.world_size} ranks: round {number} of {effort.rounds}")
        try:
            _run_round(contest, effort, samples)
        except RankProcessesError as error:
            return samples, str(error)
    return samples, None


def _run_round(contest: Contest, effort: Effort, samples: Samples) -> None:
    with contextlib.ExitStack() as stack:
        running = {
            key: stack.enter_context(RankProcesses(*key, contest.world_size))
            for key in dict.fromkeys(subject.processes for subject in contest.subjects)
        }
        iterations = {
            (case, subject): _calibrate(running[subject.processes], case, subject, effort.burst_s)
            for case in contest.cases
            for subject in contest.subjects
        }
        _agree(iterations, contest.subjects)
        for turn in range(effort.turns):
            for case in contest.cases:
                for subject in contest.subjects:
                    if subject.library != "distdbg" and turn % effort.peer_every:
                        continue
                    order = _order(case, subject, iterations[case, subject], effort.bursts)
                    times = samples.times_s.setdefault((case, subject.name), [])
                    times += running[subject.processes].ask(order)


def _order(case: Case, subject: Subject, iterations: int, bursts: int) -> dict[str, Any]:
    if case == INIT:
        return {"kind": case.kind, "ports": [free_port() for _ in range(bursts)]}
    return {
        "kind": case.kind,
        "nbytes": case.nbytes,
        "level": subject.level,
        "iterations": iterations,
        "bursts": bursts,
    }


def _calibrate(ranks: RankProcesses, case: Case, subject: Subject, burst_s: float) -> int:
    """How many ops fill a burst; doubled, so that the first, slow ones do not decide."""
    iterations = 1
    while True:
        [per_op_s] = ranks.ask(_order(case, subject, iterations, 1))
        if case == INIT or per_op_s * iterations >= burst_s / 2 or iterations >= 1 << 16:
            return max(1, round(burst_s / per_op_s))
        iterations *= 2


def _agree(iterations: dict[tuple[Case, Subject], int], subjects: Sequence[Subject]) -> None:
    """Subjects of one library get equal bursts: the barrier before them weighs the same then."""
    for case in {case for case, _ in iterations}:
        for library in {subject.library for subject in subjects}:
            chosen = [subject for subject in subjects if subject.library == library]
            fewest = min(iterations[case, subject] for subject in chosen)
            iterations.update({(case, subject): fewest for subject in chosen})
