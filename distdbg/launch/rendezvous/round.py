"""What the launchers of a job agree on before each start of the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distdbg.runtime.store import Store


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
class Round:
    """One agreement; a restart, a launcher that came or left makes the next."""

    number: int
    """From 0."""
    node_rank: int
    """This launcher's place in `nodes`; ranks are numbered node by node."""
    nodes: tuple[NodeFacts, ...]
    store: Store
    """Shared by the launchers; the keys below are the round's own."""
    store_host: str
    """Where ranks of all hosts reach the server of that store."""
    store_port: int

    @property
    def world_size(self) -> int:
        return sum(node.nproc for node in self.nodes)

    @property
    def first_rank(self) -> int:
        """The global rank of this launcher's local rank 0."""
        return sum(node.nproc for node in self.nodes[: self.node_rank])


class Rendezvous(Protocol):
    """One kind of rendezvous, with its server, connection and keep-alive thread."""

    def next_round(self, facts: NodeFacts, deadline_ns: int) -> Round:
        """Join and wait until the next round is complete.

        RendezvousError when it is not by the deadline, says who is missing; ClosedError when the job
        is over for all; also when `interrupt` was called.
        """
        ...

    def waiting_count(self) -> int:
        """How many launchers wait to join; above 0, all should start anew."""
        ...

    def lost_nodes(self) -> tuple[str, ...]:
        """The launchers of the current round that have not been heard of within the keep-alive."""
        ...

    def closed_because(self) -> str | None:
        """Why the job is over for all launchers; None: it is not."""
        ...

    def close(self, reason: str) -> None:
        """Say to all that there will be no further round."""
        ...

    def shutdown(self) -> None:
        """Leave, and free server, connection and thread. Idempotent."""
        ...
