"""The launchers' agreement in a store: read it, change it by compare-and-set, count beats.

A thousand launchers that change it at once would fail most of the time, each time for a hundred kilobytes.
So those who come take turns, and whoever has its turn takes in all those behind it that have come by
then. A turn is only good manners, for what holds is the compare-and-set. Who dies in its turn is waited
for `TURN_S`.

    turns/asked     how many have asked for a turn
    turns/now       whose turn it was last
    turns/<n>       there when it is the turn of n, or n was taken in: see `Turn`
    turns/come/<n>  what n asks for, for those before it; empty: nothing any more. It stays, for two may think
                    that it is their turn, and one of them may be about to read it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from distdbg.errors import DistError, DistStoreError, RendezvousError, UsageError
from distdbg.launch.rendezvous.state import RendezvousState

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

#: Not below a job: one server may serve several.
_SERVER_KEY = "distdbg/launcher"

#: What is at turns/<n>.
_YOUR_TURN: Final = b"1"
_TAKEN_IN: Final = b"in"

#: How long nobody ends a turn before the next one takes it.
TURN_S: Final = 1.0
_SHORTEST_SLICE_S: Final = 0.25
_LONGEST_SLICE_S: Final = 2.0
_SLICE_OF_EACH_S: Final = 0.002
#: Launchers behind that are asked at once: their keys must fit a message.
_MAX_AT_ONCE: Final = 500

T = TypeVar("T")


class LauncherTurn:
    """A launcher's turn. `is_over`: one before it has done what this one asked for."""

    def __init__(self, board: RendezvousBoard, number: int) -> None:
        self._board = board
        self._number = number
        self.is_over = False
        self.taken_in = 0
        """How many of those behind need no turn any more; to be set by whoever has this one."""

    def behind(self) -> list[bytes]:
        """What the next ones ask for, as far as they have said so; empty: nothing any more."""
        return self._board.behind(self._number)


class RendezvousBoard:
    """One connection to the agreement; not to be shared by threads."""

    def __init__(self, store: Store, job: str, where: str) -> None:
        self.store = store
        self._job = job
        self._where = where
        self._server = ""
        self._key = f"{job}/agreement"
        self._text = b""  # as last read or written; what a write expects to find

    def clone(self) -> RendezvousBoard:
        """Another connection, for another thread."""
        other = RendezvousBoard(self.store.clone(), self._job, self._where)
        other._server = self._server
        return other

    def introduce_server(self, who: str) -> None:
        """Note which launcher serves the store, so that others can name it."""
        self._ask(lambda: self.store.set(_SERVER_KEY, who[:200]))
        self._server = who

    def open(self, min_nodes: int, max_nodes: int) -> RendezvousState:
        """Begin the agreement, or find it; UsageError when it is about other numbers."""
        first = RendezvousState(min_nodes=min_nodes, max_nodes=max_nodes)
        found = self._ask(lambda: self.store.compare_set(self._key, b"", first.to_json()))
        state = RendezvousState.from_json(found)
        if (state.min_nodes, state.max_nodes) != (min_nodes, max_nodes):
            raise UsageError(
                f"this launcher has --nnodes {min_nodes}:{max_nodes}, the others at {self._where} "
                f"have {state.min_nodes}:{state.max_nodes}",
                hint="give all launchers of a job the same --nnodes, "
                "and every job at one endpoint its own --rdzv-id",
            )
        self._learn_server()
        return state

    def read(self) -> RendezvousState:
        self._text = self._ask(lambda: self.store.get(self._key))
        self._learn_server()
        return RendezvousState.from_json(self._text)

    def _learn_server(self) -> None:
        """The launcher that serves it; another may be here before that one has introduced itself."""
        if not self._server and self._ask(lambda: self.store.check([_SERVER_KEY])):
            served = self._ask(lambda: self.store.get(_SERVER_KEY))
            self._server = served.decode(errors="replace")

    def write(self, after: RendezvousState) -> bool:
        """Replace what was read last; False when somebody else was faster."""
        text = after.to_json().encode()
        found = self._ask(lambda: self.store.compare_set(self._key, self._text, text))
        if found != text:
            return False
        self._text = text
        self._ask(lambda: self.store.add(f"{self._job}/changes", 1))
        if after.is_complete or after.closing is not None:
            self._ask(lambda: self.store.set(self._settled_key(after.number), b"1"))
        return True

    def change(self, how: Callable[[RendezvousState], RendezvousState]) -> RendezvousState:
        """Apply `how` to whatever the agreement is, until nobody else was faster."""
        while True:
            before = self.read()
            after = how(before)
            if after == before or self.write(after):
                return after

    @contextmanager
    def turn(self, check: Callable[[], None], asks: str = "") -> Iterator[LauncherTurn]:
        """Wait until those who asked for a turn before have had it; `check` raises to give up.

        `asks`: what for, so that one of those may do it as well.
        """
        mine = self._ask(lambda: self.store.add(f"{self._job}/turns/asked", 1))
        turn = LauncherTurn(self, mine)
        try:
            if asks:
                self._ask(lambda: self.store.set(self._come_key(mine), asks))
            turn.is_over = self._await_turn(mine, check)
            if not turn.is_over:
                self._ask(lambda: self.store.set(f"{self._job}/turns/now", str(mine)))
            yield turn
        except BaseException:
            with suppress(RendezvousError):
                self._ask(lambda: self.store.set(self._come_key(mine), b""))
            raise
        finally:
            with suppress(RendezvousError):  # it is gone: so they hear by themselves
                if not turn.is_over:
                    self._hand_on(mine, turn.taken_in)
                self._ask(lambda: self.store.delete_key(self._turn_key(mine)))

    def _hand_on(self, mine: int, taken_in: int) -> None:
        last = mine + taken_in
        reported = {self._turn_key(n): _TAKEN_IN for n in range(mine + 1, last + 1)}
        reported[self._turn_key(last + 1)] = _YOUR_TURN
        if taken_in:
            reported[f"{self._job}/turns/now"] = str(last).encode()
        self._ask(lambda: self.store.multi_set(list(reported), list(reported.values())))

    def behind(self, number: int) -> list[bytes]:
        """What those ask for whose turns are the next ones after this."""
        last = self._ask(lambda: self.store.add(f"{self._job}/turns/asked", 0))
        keys = [self._come_key(n) for n in range(number + 1, min(last, number + _MAX_AT_ONCE) + 1)]
        while keys and not self._has(keys):
            keys = keys[: len(keys) // 2]  # one of them has not said it yet
        return self._ask(lambda: self.store.multi_get(keys)) if keys else []

    def _has(self, keys: Sequence[str]) -> bool:
        return self._ask(lambda: self.store.check(keys))

    def _await_turn(self, mine: int, check: Callable[[], None]) -> bool:
        """Whether somebody else has done what this one asked for."""
        now, idle_s = 0, 0.0
        while mine > 1:
            check()
            ahead_s = (mine - now) * _SLICE_OF_EACH_S
            slice_s = min(max(_SHORTEST_SLICE_S, ahead_s), _LONGEST_SLICE_S)
            if self._await_key(self._turn_key(mine), slice_s):
                return self._ask(lambda: self.store.get(self._turn_key(mine))) == _TAKEN_IN
            before, now = now, self._ask(lambda: self.store.add(f"{self._job}/turns/now", 0))
            idle_s = idle_s + slice_s if now == before else 0.0
            if idle_s >= TURN_S * (mine - now):  # one by one
                break
        return False

    def _turn_key(self, number: int) -> str:
        return f"{self._job}/turns/{number}"

    def _come_key(self, number: int) -> str:
        return f"{self._job}/turns/come/{number}"

    def await_settled(self, number: int, timeout_s: float) -> bool:
        """Wait until round `number` is complete, or the job is closed; False: not within that time."""
        return self._await_key(self._settled_key(number), timeout_s)

    def _settled_key(self, number: int) -> str:
        return f"{self._job}/settled/{number}"

    def _await_key(self, key: str, timeout_s: float) -> bool:
        with suppress(DistStoreError):  # or it is gone: the next that is asked says so
            self.store.wait([key], timedelta(seconds=timeout_s))
            return True
        return False

    def count_changes(self) -> int:
        """A number that is another one after every change: cheaper to ask for than the whole."""
        return self._ask(lambda: self.store.add(f"{self._job}/changes", 0))

    def beat(self, name: str) -> None:
        """Show that a launcher is alive; before its first `write`, too."""
        self._ask(lambda: self.store.add(f"{self._job}/beats/{name}", 1))

    def count_beats(self, names: Sequence[str]) -> dict[str, int]:
        """How often each launcher has beaten; all of them have once."""
        if not names:
            return {}
        keys = [f"{self._job}/beats/{name}" for name in names]
        counts = self._ask(lambda: self.store.multi_get(keys))
        return {name: int(count) for name, count in zip(names, counts, strict=True)}

    def acknowledge(self, name: str) -> None:
        """Note that a launcher has seen that the job is closed."""
        self._ask(lambda: self.store.set(f"{self._job}/closed/{name}", b"1"))

    def have_acknowledged(self, names: Sequence[str]) -> bool:
        return not names or self._ask(
            lambda: self.store.check([f"{self._job}/closed/{name}" for name in names])
        )

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except UsageError:
            raise
        except DistError as error:
            who = self._server or "the launcher that served it"
            raise RendezvousError(
                f"the launchers' store at {self._where} is gone: it was served by {who}",
                details=[error.what],
                hint="look at the output of that launcher: it ended, or its host is not reached",
            ) from error
