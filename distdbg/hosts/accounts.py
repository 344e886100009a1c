"""Accounts of where the ranks of each host wait, on their way to the root; requests for new ones, down. Pure.

An account is what one host says of its ranks (`judging.account`); here it is only carried. Of each host the
last one goes up, and no more than a bounded number of bytes at a time.

Accounts of several hosts were made at different moments. Before the root acts on them it sends a request, and
each host answers with an account made after the request had come. A rank that waits in the same op in both
accounts waited there when the request was sent: so all of them did at one moment, and no clock was needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: What one host may say; what is longer is cut where it is made.
MAX_ACCOUNT_NBYTES: Final = 64 << 10
#: What goes up a link at once.
_MAX_BATCH_NBYTES: Final = 256 << 10
_MAX_HOSTS: Final = 1 << 16
_MAX_RANKS: Final = 64
_MAX_NUMBER: Final = 1 << 62


class HostAccountState(NamedTuple):
    """The last account of one host."""

    node: int
    request: int
    """The number of the last request that had come to the host when it was made."""
    made_ns: int
    """When it was made, on the clock of whoever holds it: not earlier than in truth."""
    account: dict[str, Any]
    nbytes: int


@dataclass(frozen=True, slots=True)
class AccountRequest:
    """A request of the root for a new account of every host."""

    number: int = 0
    ranks: tuple[int, ...] = ()
    """Those that are about to be named as the cause."""

    def next(self, ranks: Iterable[int]) -> AccountRequest:
        return AccountRequest(self.number + 1, tuple(ranks)[:_MAX_RANKS])

    def to_json(self) -> list[int]:
        return [self.number, *self.ranks]

    @classmethod
    def from_json(cls, found: object) -> AccountRequest:
        """ValueError for what is none."""
        if not isinstance(found, list) or not 0 < len(found) <= _MAX_RANKS + 1:
            raise ValueError("not a probe")
        if not all(type(one) is int and 0 <= one < _MAX_NUMBER for one in found):
            raise ValueError("not a probe")
        return cls(found[0], tuple(found[1:]))


@dataclass(slots=True)
class Accounts:
    """The accounts that one node knows of, and which of them have still to go up."""

    is_root: bool = False
    _reported: dict[int, HostAccountState] = field(default_factory=dict)
    _due: dict[int, None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[HostAccountState]:
        return iter(self._reported.values())

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def put(self, node: int, account: dict[str, Any], request: int, made_ns: int) -> None:
        """The newest of a host; ValueError when it is too long."""
        nbytes = len(json.dumps(account))
        if nbytes > MAX_ACCOUNT_NBYTES:
            raise ValueError(f"an account holds at most {MAX_ACCOUNT_NBYTES:,} bytes")
        self._put(HostAccountState(node, request, made_ns, account, nbytes))

    def forget(self) -> None:
        """Another parent: it has nothing."""
        if not self.is_root:
            self._due = dict.fromkeys(self._reported)

    def batch(self, now_ns: int) -> list[Any]:
        """What goes up now."""
        batch: list[Any] = []
        nbytes = 0
        for node in list(self._due):
            reported = self._reported[node]
            nbytes += reported.nbytes
            if batch and nbytes > _MAX_BATCH_NBYTES:
                break
            del self._due[node]
            batch.append(
                [node, reported.request, max(0, now_ns - reported.made_ns), reported.account]
            )
        return batch

    def take(self, batch: object, now_ns: int) -> bool:
        """What a child tells; whether anything came. ValueError for what `batch` does not make."""
        if not isinstance(batch, list):
            raise ValueError("not accounts")
        for one in batch:
            match one:
                case [int() as node, int() as request, int() as age_ns, dict() as account] if (
                    0 <= node < _MAX_HOSTS and request >= 0 and 0 <= age_ns < _MAX_NUMBER
                ):
                    self.put(node, account, request, now_ns - age_ns)
                case _:
                    raise ValueError("not an account")
        return bool(batch)

    def _put(self, reported: HostAccountState) -> None:
        self._reported[reported.node] = reported
        if not self.is_root:
            self._due[reported.node] = None
