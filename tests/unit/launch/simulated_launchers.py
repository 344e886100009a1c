"""Launchers as plain objects: the loop of a launcher, cut into steps that a test may interleave.

A launcher reads the agreement in one step and writes it in a later one, so others come in between and
its write is lost, as with a real store. Time is a number that the test moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distdbg.launch.decide import Decision, LauncherAction, Situation, decide
from distdbg.launch.rendezvous import state as agreement
from distdbg.launch.rendezvous.notes import LauncherNote
from distdbg.launch.rendezvous.round import Closing, NodeFacts
from distdbg.launch.rendezvous.state import LauncherMember, RendezvousState

LAST_CALL_S = 30.0


def member(name: str, place: int | None = None) -> LauncherMember:
    return LauncherMember(
        facts=NodeFacts(name=name, addr="127.0.0.1", host=name, nproc=1), place=place
    )


@dataclass
class Job:
    """What all launchers share."""

    min_nodes: int = 1
    max_nodes: int = 4
    state: RendezvousState = field(init=False)
    notes: dict[int, dict[str, LauncherNote]] = field(default_factory=dict)
    now_s: float = 0.0
    completed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Node names by round."""

    def __post_init__(self) -> None:
        self.state = RendezvousState(min_nodes=self.min_nodes, max_nodes=self.max_nodes)

    def write(self, before: RendezvousState, after: RendezvousState) -> bool:
        if self.state != before:
            return False
        self.state = RendezvousState.from_json(after.to_json())  # what a store keeps is text
        if after.is_complete and not (before.is_complete and before.number == after.number):
            assert after.number not in self.completed
            self.completed[after.number] = tuple(node.name for node in after.nodes)
        return True


class Launcher:
    """Joins, runs one rank, decides."""

    def __init__(
        self, job: Job, name: str, *, max_restarts: int = 0, place: int | None = None
    ) -> None:
        self.job = job
        self.me = member(name, place)
        self.max_restarts = self.restarts_left = max_restarts
        self.number = -1
        self.is_running = False
        self.failure: str | None = None
        self.signal: str | None = None
        self.is_dead = False
        self.end: Decision | None = None
        self.failed_rounds: list[int] = []
        self._read: RendezvousState | None = None
        self._enough_since_s: float | None = None
        self._is_joining = True

    @property
    def name(self) -> str:
        return self.me.name

    @property
    def is_over(self) -> bool:
        return self.is_dead or self.end is not None

    @property
    def is_in_round(self) -> bool:
        return not self.is_over and not self._is_joining

    def end_rank(self, failure: str | None = None) -> None:
        """Its rank ends, if one runs."""
        if self.is_running and not self.is_over:
            self.is_running = False
            self.failure = failure

    def step(self) -> None:
        """One turn of its loop."""
        if self.is_over:
            return
        if self._is_joining:
            self._join()
        else:
            self._look()

    def _join(self) -> None:
        if self.signal is not None:
            self._leave(Decision(action=LauncherAction.LEAVE))
            return
        if self._read is None:
            self._read = self.job.state
            return
        before, self._read = self._read, None
        if before.closing is not None:
            self._leave(Decision(action=LauncherAction.END_FAILED, reason=before.closing.reason))
            return
        if before.is_complete and before.number > self.number and self.name in before.joined:
            self.number = before.number
            self._is_joining, self.is_running, self.failure = False, True, None
            return
        after = agreement.come(before, self.me, self.number)
        if after.is_complete or len(after.nodes) < after.min_nodes:
            self._enough_since_s = None
        elif self._enough_since_s is None:
            self._enough_since_s = self.job.now_s
        since_s = self.job.now_s if self._enough_since_s is None else self._enough_since_s
        if agreement.is_ready(after, self.job.now_s - since_s, LAST_CALL_S):
            after = agreement.complete(after)
        if after != before:
            self.job.write(before, after)

    def _look(self) -> None:
        state = self.job.state
        notes = self.job.notes.setdefault(self.number, {})
        if not self.is_running:
            kind = "finished" if self.failure is None else "failed"
            notes.setdefault(self.name, LauncherNote(kind=kind, what=self.failure or ""))
        decision = decide(
            Situation(
                name=self.name,
                nodes=self.job.completed[self.number],
                running=int(self.is_running),
                failure=self.failure,
                restarts_left=self.restarts_left,
                notes=dict(notes),
                waiting_count=agreement.waiting_count(state, self.number),
                next_has_begun=state.number > self.number,
                lost=agreement.lost_nodes(state, self.number),
                closing=state.closing,
                signal=self.signal,
            )
        )
        match decision.action:
            case LauncherAction.GO_ON:
                return
            case LauncherAction.RESTART:
                if decision.uses_restart:
                    self.restarts_left -= 1
                    self.failed_rounds.append(self.number)
                self.is_running = False
                self._is_joining = True
                self._enough_since_s = None
            case LauncherAction.END_WELL | LauncherAction.END_FAILED:
                closing = Closing(
                    reason=decision.reason, is_well=decision.action is LauncherAction.END_WELL
                )
                self.job.state = agreement.close(self.job.state, closing)
                self._leave(decision)
            case LauncherAction.LEAVE:
                self._leave(decision)

    def _leave(self, decision: Decision) -> None:
        self.end = decision
        self.is_running = False
        self.job.state = agreement.go(self.job.state, [self.name])


def bury(job: Job, launchers: Sequence[Launcher]) -> None:
    """The keep-alive takes out who is dead."""
    job.state = agreement.go(job.state, [one.name for one in launchers if one.is_dead])


def settle(job: Job, launchers: Sequence[Launcher], turns: int = 200) -> None:
    """Give everybody turns, and time for the last call; the dead are noticed."""
    for _ in range(turns):
        bury(job, launchers)
        for one in launchers:
            one.step()
        job.now_s += 1.0
