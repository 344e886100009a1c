"""What the launchers of a job agree on before each start of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from distdbg.errors import RendezvousError

if TYPE_CHECKING:
    from distdbg.runtime.store import Store


class RendezvousInterrupted(RendezvousError):
    """This launcher was told to leave while it waited for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a launcher says of itself."""

    name: str
    """Unique among the launchers of the job, for as long as it lives."""
    addr: str
    """Where others reach this host."""
    host: str
    """What messages call it."""
    nproc: int
    role: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRound:
    """One agreement; a restart, a launcher that came or left makes the next."""

    number: int
    """From 0, the same on all launchers, also on those that came later."""
    node_rank: int
    """This launcher's place in `nodes`; ranks are numbered node by node."""
    nodes: tuple[NodeFacts, ...]
    store: Store
    """Shared by the launchers, for keys of this round alone."""
    store_host: str
    """Where ranks of all hosts reach the server of that store."""
    store_port: int
    prefix: str
    """What the keys of this round begin with in that server; ranks put theirs below it."""
    serves: bool
    """Whether the store ends with this launcher, which should be the last to leave then."""

    @property
    def world_size(self) -> int:
        return sum(node.nproc for node in self.nodes)

    @property
    def first_rank(self) -> int:
        """The global rank of this launcher's local rank 0."""
        return sum(node.nproc for node in self.nodes[: self.node_rank])

    def store_url(self, part: str) -> str:
        """Where `part` of what runs in this round meets."""
        host = f"[{self.store_host}]" if ":" in self.store_host else self.store_host
        return f"launcher://{host}:{self.store_port}/{self.prefix}/{part}"

    def ranks_by_node(self) -> Iterator[tuple[NodeFacts, range]]:
        """Each launcher with the global ranks of its host."""
        first = 0
        for node in self.nodes:
            yield node, range(first, first + node.nproc)
            first += node.nproc


def round_prefix(job: str, number: int) -> str:
    """What keys of a round begin with: a path of a URL, whatever the job is called."""
    return f"{quote(job, safe='')}/{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Why there is no further round, for any launcher."""

    reason: str
    is_well: bool
    """Whether the ranks of all launchers had ended well."""
    exit_code: int = 1
    """Otherwise, of the rank that failed first: the note that has it goes with the launcher's store."""


class Rendezvous(Protocol):
    """One kind of rendezvous, with its server, connection and keep-alive thread.

    Only `next_round` and `shutdown` may wait. The others say what the keep-alive has found last, so
    a loop may ask them as often as it likes; they raise RendezvousError once the store is gone,
    unless the job was closed before.
    """

    def next_round(self, facts: NodeFacts, deadline_ns: int | None = None) -> LauncherRound:
        """Join, or come back after a round, and wait until the next one is complete.

        Without a deadline, join_timeout of --rdzv-conf is the limit. RendezvousError when it is not
        complete by then, says who is there; RendezvousClosedError when the job is over for all;
        RendezvousInterrupted after `interrupt`.
        """
        ...

    def interrupt(self) -> None:
        """Have a `next_round` that waits raise soon; may be called by a signal handler."""
        ...

    def waiting_count(self) -> int:
        """How many launchers wait for another round; above 0, all should stop and join it."""
        ...

    def next_has_begun(self) -> bool:
        """Whether another launcher of this round has asked for the next one: all must join it."""
        ...

    def lost_nodes(self) -> tuple[str, ...]:
        """Names of those of the current round that left it, or were not heard of for too long.

        This launcher's own name is among them when the others took it for dead.
        """
        ...

    def closing(self) -> Closing | None:
        """Why the job is over for all launchers; None: it is not."""
        ...

    def close(self, reason: str, *, is_well: bool = False, exit_code: int = 1) -> None:
        """Say to all that there will be no further round; the first reason stays."""
        ...

    def shutdown(self) -> None:
        """Leave, and free server, connection and thread. Idempotent, takes a few seconds at most.

        Does not close the job, except where it takes the store of the others with it.
        """
        ...
