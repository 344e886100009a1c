"""The launchers' agreement in a store: read it, change it by compare-and-set, count beats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from distdbg.errors import DistError, RendezvousError, UsageError
from distdbg.launch.rendezvous.state import State

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

#: Not below a job: one server may serve several.
_SERVER_KEY = "distdbg/launcher"

T = TypeVar("T")


class Board:
    """One connection to the agreement; not to be shared by threads."""

    def __init__(self, store: Store, job: str, where: str) -> None:
        self.store = store
        self._job = job
        self._where = where
        self._server = ""
        self._key = f"{job}/agreement"
        self._text = b""  # as last read or written; what a write expects to find

    def clone(self) -> Board:
        """Another connection, for another thread."""
        other = Board(self.store.clone(), self._job, self._where)
        other._server = self._server
        return other

    def introduce_server(self, who: str) -> None:
        """Note which launcher serves the store, so that others can name it."""
        self._ask(lambda: self.store.set(_SERVER_KEY, who[:200]))
        self._server = who

    def open(self, min_nodes: int, max_nodes: int) -> State:
        """Begin the agreement, or find it; UsageError when it is about other numbers."""
        first = State(min_nodes=min_nodes, max_nodes=max_nodes)
        found = self._ask(lambda: self.store.compare_set(self._key, b"", first.to_json()))
        state = State.from_json(found)
        if (state.min_nodes, state.max_nodes) != (min_nodes, max_nodes):
            raise UsageError(
                f"this launcher has --nnodes {min_nodes}:{max_nodes}, the others at {self._where} "
                f"have {state.min_nodes}:{state.max_nodes}",
                hint="give all launchers of a job the same --nnodes, "
                "and every job at one endpoint its own --rdzv-id",
            )
        self._learn_server()
        return state

    def read(self) -> State:
        """The agreement as it is now."""
        self._text = self._ask(lambda: self.store.get(self._key))
        self._learn_server()
        return State.from_json(self._text)

    def _learn_server(self) -> None:
        """Who serves it; a launcher may be here before the one that serves has introduced itself."""
        if not self._server and self._ask(lambda: self.store.check([_SERVER_KEY])):
            served = self._ask(lambda: self.store.get(_SERVER_KEY))
            self._server = served.decode(errors="replace")

    def write(self, after: State) -> bool:
        """Replace what was read last; False when somebody else was faster."""
        text = after.to_json().encode()
        found = self._ask(lambda: self.store.compare_set(self._key, self._text, text))
        if found != text:
            return False
        self._text = text
        self._ask(lambda: self.store.add(f"{self._job}/changes", 1))
        return True

    def change(self, how: Callable[[State], State]) -> State:
        """Apply `how` to whatever the agreement is, until nobody else was faster."""
        while True:
            before = self.read()
            after = how(before)
            if after == before or self.write(after):
                return after

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
