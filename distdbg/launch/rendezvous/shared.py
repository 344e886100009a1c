"""The rendezvous of several launchers through one store: what c10d and static have in common.

They differ in how the store is found, which is the `Reach` they are given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from distdbg.errors import (
    DistError,
    InternalError,
    RendezvousClosedError,
    RendezvousError,
    UsageError,
)
from distdbg.launch.rendezvous import state as agreement
from distdbg.launch.rendezvous.board import LauncherTurn, RendezvousBoard
from distdbg.launch.rendezvous.keeper import KeepAlive
from distdbg.launch.rendezvous.round import (
    Closing,
    LauncherRound,
    NodeFacts,
    RendezvousInterrupted,
    round_prefix,
)
from distdbg.launch.rendezvous.waits import WaitNotice
from distdbg.record.durations import duration_text

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.settings import RendezvousSettings
    from distdbg.runtime.store import TCPStore

_POLL_S = 0.02
#: The first launchers that have come look at every change, so that it is soon seen that the round is
#: complete; the others wait to be told.
_LOOKERS = 4
_TOLD_S = 1.0
#: Now and then all look: whoever should have told them may have died. All of them together not more often,
#: however many they are.
_READ_S = 5.0
_READ_OF_EACH_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLauncherStore:
    store: TCPStore
    host: str
    """Where ranks of all hosts reach it."""
    port: int
    completes: bool = True
    """Whether this launcher may declare a round complete."""
    release: Callable[[], None] = lambda: None
    """Give back what was only for finding the store; before the first round is complete."""


class StoreFinder(Protocol):
    @property
    def where(self) -> str:
        """The place, for messages."""
        ...

    def open(self, deadline_ns: int, check: Callable[[], None]) -> OpenLauncherStore:
        """Open it by the deadline; `check` is called now and then and raises to give up."""
        ...


def _looks(state: agreement.RendezvousState, name: str) -> bool:
    """Whether this launcher looks at every change: it has not come, or is one of the first."""
    return name not in state.joined[_LOOKERS:]


class SharedRendezvous:
    """A launcher's part in an agreement with others."""

    def __init__(
        self,
        reach: StoreFinder,
        *,
        job: str,
        min_nodes: int,
        max_nodes: int,
        settings: RendezvousSettings,
        place: int | None = None,
    ) -> None:
        self._reach = reach
        self._job = job
        self._min_nodes = min_nodes
        self._max_nodes = max_nodes
        self._settings = settings
        self._place = place
        self._reached: OpenLauncherStore | None = None
        self._board: RendezvousBoard | None = None
        self._keeper: KeepAlive | None = None
        self._name = ""
        self._number = -1
        self._closing: Closing | None = None
        self._is_interrupted = False
        self._is_shut = False

    # The next round ----------------------------------------------------------------------------

    def next_round(self, facts: NodeFacts, deadline_ns: int | None = None) -> LauncherRound:
        started_ns = time.monotonic_ns()
        if deadline_ns is None:
            deadline_ns = started_ns + int(self._settings.join_timeout_s * 1e9)
        self._check()
        member = agreement.LauncherMember(facts=facts, place=self._place)
        board, reached = self._open(facts, deadline_ns)
        if self._keeper is None:
            board.beat(facts.name)  # before anybody can know this launcher, and miss its beats
            self._keeper = KeepAlive(board.clone(), facts.name, self._settings)
            self._name = facts.name
        elif facts.name != self._name:
            raise InternalError(f"launcher {self._name} calls itself {facts.name} now")
        try:
            state = self._await_round(board, reached, member, deadline_ns, started_ns)
        except RendezvousClosedError:
            raise
        except DistError:
            seen = self._keeper.state
            if seen is not None and seen.closing is not None:
                # The store goes as soon as the keeper has said that it knows.
                self._closing = seen.closing
                self._check()
            with suppress(DistError):  # so that the others do not wait for this one
                board.change(lambda now: agreement.go(now, [facts.name]))
            raise
        return self._to_round(state, reached)

    def _open(
        self, facts: NodeFacts, deadline_ns: int
    ) -> tuple[RendezvousBoard, OpenLauncherStore]:
        if self._board is not None and self._reached is not None:
            return self._board, self._reached
        reached = self._reach.open(deadline_ns, self._check)
        try:
            board = RendezvousBoard(reached.store, self._job, self._reach.where)
            if reached.store.is_serving:
                board.introduce_server(f"launcher {facts.name} on {facts.host}")
            board.open(self._min_nodes, self._max_nodes)
        except BaseException:
            reached.release()
            reached.store.close()
            raise
        self._reached, self._board = reached, board
        return board, reached

    def _await_round(
        self,
        board: RendezvousBoard,
        reached: OpenLauncherStore,
        member: agreement.LauncherMember,
        deadline_ns: int,
        started_ns: int,
    ) -> agreement.RendezvousState:
        patience_ns = deadline_ns - started_ns
        enough_since_ns: int | None = None
        changes, before, read_ns = board.count_changes(), board.read(), started_ns
        is_reported = False
        notice = WaitNotice()
        while True:
            now_ns = time.monotonic_ns()
            is_looker = is_reported or reached.store.is_serving or _looks(before, member.name)
            counted = board.count_changes() if is_looker else changes
            longest_s = max(_READ_S, len(before.nodes) * _READ_OF_EACH_S)
            if counted != changes or now_ns - read_ns > longest_s * 1e9:
                before, changes, read_ns = board.read(), counted, now_ns
            if before.closing is not None:
                self._closing = before.closing
            self._check()
            if other := agreement.taken_by(before, member):
                raise UsageError(
                    f"--node-rank {member.place} is taken by launcher {other.name} "
                    f"on {other.facts.host}",
                    hint="give each launcher of the job its own --node-rank",
                )
            is_mine = member.name in before.joined
            if before.is_complete and before.number > self._number and is_mine:
                return before
            if before.is_complete and before.room == 0:
                deadline_ns = now_ns + patience_ns  # a spare one: there as long as the job runs
            if now_ns > deadline_ns:
                raise self._not_complete(before, now_ns - started_ns)
            if not before.is_complete and enough_since_ns is None:
                notice.look(partial(self._waits_for, before), deadline_ns)
            elif enough_since_ns is not None:
                call_ns = int(self._settings.last_call_timeout_s * 1e9)
                words = partial(self._may_grow, before)
                notice.look(words, enough_since_ns + call_ns, "it starts")
            after = agreement.come(before, member, self._number)
            if after.is_complete or len(after.nodes) < after.min_nodes:
                enough_since_ns = None
            elif enough_since_ns is None:
                enough_since_ns = now_ns
            enough_for_s = 0.0 if enough_since_ns is None else (now_ns - enough_since_ns) / 1e9
            if after != before:
                asks = agreement.to_asks(member, self._number)
                with board.turn(self._check, asks) as turn:
                    if turn.is_over:
                        before = board.read()
                    else:
                        before = self._step(board, reached, member, enough_for_s, turn)
            elif self._complete(after, reached, enough_for_s) != before:
                before = self._step(board, reached, member, enough_for_s)
            elif reached.store.is_serving:
                time.sleep(_POLL_S)
            else:
                number = before.number + before.is_complete
                pause_s = _POLL_S if _looks(before, member.name) else _TOLD_S
                is_reported = board.await_settled(number, pause_s)

    def _step(
        self,
        board: RendezvousBoard,
        reached: OpenLauncherStore,
        member: agreement.LauncherMember,
        enough_for_s: float,
        turn: LauncherTurn | None = None,
    ) -> agreement.RendezvousState:
        """Change what is there now, for those behind as well, and return what is there then."""
        before = board.read()
        if agreement.taken_by(before, member) is not None:
            return before
        after = agreement.come(before, member, self._number)
        taken_in = 0
        for asks in turn.behind() if turn is not None else ():
            with_next = agreement.come_as_asked(after, asks) if asks else after
            if with_next is None:
                break  # it is to see for itself why not
            after, taken_in = with_next, taken_in + 1
        after = self._complete(after, reached, enough_for_s)
        if after != before and not board.write(after):
            return board.read()
        if turn is not None:
            turn.taken_in = taken_in
        return after

    def _complete(
        self, state: agreement.RendezvousState, reached: OpenLauncherStore, enough_for_s: float
    ) -> agreement.RendezvousState:
        """The same, or complete if it is ready and this launcher may declare it so."""
        last_call_s = self._settings.last_call_timeout_s
        if reached.completes and agreement.is_ready(state, enough_for_s, last_call_s):
            reached.release()
            return agreement.complete(state)
        return state

    def _to_round(
        self, state: agreement.RendezvousState, reached: OpenLauncherStore
    ) -> LauncherRound:
        from distdbg.runtime.store import PrefixStore

        self._number = state.number
        nodes = tuple(node.facts for node in state.nodes)
        prefix = round_prefix(self._job, state.number)
        return LauncherRound(
            number=state.number,
            node_rank=[node.name for node in nodes].index(self._name),
            nodes=nodes,
            store=PrefixStore(f"{prefix}/launchers", reached.store),
            store_host=reached.host,
            store_port=reached.port,
            prefix=prefix,
            serves=reached.store.is_serving,
        )

    def _waits_for(self, state: agreement.RendezvousState) -> str:
        joined = f"{len(state.joined)} of {state.min_nodes} launchers joined {self._reach.where}"
        return f"{joined}, and this one waits for the others"

    def _may_grow(self, state: agreement.RendezvousState) -> str:
        joined = f"{len(state.joined)} of {state.max_nodes} launchers joined {self._reach.where}"
        return f"{joined}, which is enough"

    def _not_complete(self, state: agreement.RendezvousState, waited_ns: int) -> RendezvousError:
        came = len(state.joined)
        expected = state.min_nodes
        details = [
            f"{'joined' if not state.is_complete else 'running'}: {node.name} on {node.facts.host}"
            for node in state.nodes[:8]
            if node.name in state.joined
        ]
        details += [f"did not rejoin: {name}" for name in state.missing[:8]]
        if state.is_complete:
            what = (
                f"this launcher waited {duration_text(waited_ns / 1e9)} at {self._reach.where}, but the "
                f"{came} that run did not restart to let it join"
            )
            hint = "their job is about to end, or they hang; look at their output"
        else:
            what = (
                f"{came} of {expected} launchers joined {self._reach.where} "
                f"within {duration_text(waited_ns / 1e9)}"
            )
            hint = "look at the output of the others; --rdzv-conf join_timeout=SECONDS waits longer"
        if self._place is not None:
            places = {node.place for node in state.nodes}
            absent = [str(n) for n in range(state.max_nodes) if n not in places]
            if absent:
                details.append(f"no launcher has --node-rank {', '.join(absent[:8])}")
        return RendezvousError(what, expected=expected, details=details, hint=hint)

    def _check(self) -> None:
        if self._is_shut:
            raise InternalError("a rendezvous was used after it was shut down")
        if self._closing is not None:
            raise RendezvousClosedError(f"the job is over: {self._closing.reason}")
        if self._is_interrupted:
            raise RendezvousInterrupted("this launcher was asked to stop before all had joined")

    # While ranks run ---------------------------------------------------------------------------

    def interrupt(self) -> None:
        self._is_interrupted = True  # no lock, no event: a signal handler may be here

    def waiting_count(self) -> int:
        state = self._seen()
        return 0 if state is None else agreement.waiting_count(state, self._number)

    def next_has_begun(self) -> bool:
        state = self._seen()
        return state is not None and state.number > self._number

    def lost_nodes(self) -> tuple[str, ...]:
        state = self._seen()
        return () if state is None else agreement.lost_nodes(state, self._number)

    def closing(self) -> Closing | None:
        self._seen()
        return self._closing

    def close(self, reason: str, *, is_well: bool = False, exit_code: int = 1) -> None:
        closing = Closing(reason=reason, is_well=is_well, exit_code=exit_code)
        known = self._keeper.state if self._keeper is not None else None
        if known is not None and known.closing is not None:
            closing = known.closing
        elif self._board is not None and not self._is_shut:
            with suppress(DistError):  # those that cannot be told notice by themselves
                after = self._board.change(lambda now: agreement.close(now, closing))
                closing = after.closing or closing
        self._closing = self._closing or closing

    def _seen(self) -> agreement.RendezvousState | None:
        keeper = self._keeper
        if keeper is None:
            return None
        if keeper.state is not None and keeper.state.closing is not None:
            self._closing = self._closing or keeper.state.closing
        if keeper.trouble is not None and self._closing is None and not self._is_shut:
            raise keeper.trouble
        return keeper.state

    # Leaving -----------------------------------------------------------------------------------

    def shutdown(self) -> None:
        if self._is_shut:
            return
        self._is_shut = True
        board, reached, keeper = self._board, self._reached, self._keeper
        try:
            if board is not None and reached is not None and keeper is not None:
                with suppress(DistError):
                    self._leave(board, reached)
        finally:
            if keeper is not None:
                keeper.stop()
            if reached is not None:
                reached.release()
                reached.store.close()

    def _leave(self, board: RendezvousBoard, reached: OpenLauncherStore) -> None:
        name = self._name
        if self._closing is not None and not reached.store.is_serving:
            # Nobody looks any more at who is in it, but whether all know that it is over.
            board.acknowledge(name)
            return
        state = board.change(lambda now: agreement.go(now, [name]))
        if not reached.store.is_serving or not state.all_names:
            return
        # The store ends here: the others hear why before they find it gone. The dead among them
        # are taken out by the keeper meanwhile.
        reason = f"launcher {name}, which served the store of the job, left"
        closing = Closing(reason=reason, is_well=False)
        board.change(lambda now: agreement.close(now, closing))
        patience_s = min(self._settings.close_timeout_s, self._settings.silence_s + 1.0)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if board.have_acknowledged(board.read().all_names):
                return
            time.sleep(_POLL_S)
