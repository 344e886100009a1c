"""How the ranks of each launcher ended in a round, told to the other launchers through its store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Self

from distdbg.errors import DistError

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.round import Round

_LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What one launcher says of its ranks, once, at their end."""

    kind: Literal["finished", "failed"]
    what: str = ""
    """Of a failure: what failed first there, in one line."""
    exit_code: int = 1
    """Of a failure: what the launcher there ends with."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "what": self.what[:_LONGEST_TEXT]})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """ValueError for what is none."""
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("kind") not in ("finished", "failed"):
            raise ValueError("not a note")
        code = found.get("exit_code")
        return cls(
            kind=found["kind"],
            what=str(found.get("what", ""))[:_LONGEST_TEXT],
            exit_code=code if isinstance(code, int) and 0 < code < 256 else 1,
        )


class Notes:
    """The notes of one round.

    Reading and writing never raise: whether the store is gone is the rendezvous' to say. Read them
    after asking the rendezvous: who begins another round because of a failure has noted it before.
    """

    def __init__(self, round: Round) -> None:
        self._store = round.store
        self._node_rank = round.node_rank
        self._names = [node.name for node in round.nodes]
        self._count = 0
        self._found: dict[str, Note] = {}

    def write(self, note: Note) -> None:
        """Tell the others."""
        try:
            self._store.set(_key(self._node_rank), note.to_json())
            self._store.add("notes", 1)
        except DistError:
            return

    def read(self) -> Mapping[str, Note]:
        """The notes of all launchers so far, by name; this one's as well."""
        try:
            count = self._store.add("notes", 0)
            if count != self._count:
                self._find()
                self._count = count
        except (DistError, ValueError):
            pass  # as far as is known
        return self._found

    def _find(self) -> None:
        for node_rank, name in enumerate(self._names):
            key = _key(node_rank)
            if name not in self._found and self._store.check([key]):
                self._found[name] = Note.from_json(self._store.get(key))


def _key(node_rank: int) -> str:
    return f"note/{node_rank}"
