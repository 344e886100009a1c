"""How the two ends of a link prove to each other that they know the run's token. Pure.

    parent -> child   {"distdbg": "tree", "protocol": 1, "meeting": m, "nonce": s}
    child -> parent   {"node": n, "nonce": c, "proof": HMAC(token, "child" ...)}
    parent -> child   {"proof": HMAC(token, "parent" ...)}

The HMAC-SHA256 is over the role, the protocol, the meeting (run and round), the child's node and both
nonces, so no proof can be sent back, or used again. The parent, whom anybody can reach, proves nothing
to who has not.
The messages after it are not signed: as with the store, a network that changes what is said is not
what this keeps out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

PROTOCOL: Final = 1
#: A frame before the proof; after it a message may be larger.
MAX_GREETING_NBYTES: Final = 1024
_NONCE_NBYTES: Final = 16


class NotTrusted(ValueError):
    """The other end is no node of this round of this run."""


def _nonce() -> str:
    return secrets.token_hex(_NONCE_NBYTES)


@dataclass(slots=True)
class Handshake:
    """One end's part. `first` is what it says unasked; `take` answers what comes.

    After `take` has returned with `is_done` the other end has proven itself.
    """

    token: bytes
    meeting: str
    """The run and its round: where agents of another one have nothing to say."""
    node: int | None
    """The node of the child that connects; None: this is the parent's end, which learns it."""
    is_done: bool = False
    nonce: str = field(default_factory=_nonce)
    _is_parent: bool = False
    _theirs: str = ""

    def __post_init__(self) -> None:
        self._is_parent = self.node is None

    def first(self) -> bytes | None:
        """What this end begins with."""
        if not self._is_parent:
            return None
        return _to_bytes(distdbg="tree", protocol=PROTOCOL, meeting=self.meeting, nonce=self.nonce)

    def take(self, frame: bytes) -> bytes | None:
        """What to say to this; None: nothing. NotTrusted when the link is to be cut."""
        words = _from_bytes(frame)
        if self._is_parent:
            return self._answer(words)
        if self._theirs:
            if not hmac.compare_digest(_text(words, "proof"), self._prove("parent")):
                raise NotTrusted("it does not know the token")
            self.is_done = True
            return None
        if words.get("distdbg") != "tree" or words.get("protocol") != PROTOCOL:
            raise NotTrusted(f"it is no agent of protocol {PROTOCOL}")
        if words.get("meeting") != self.meeting:
            raise NotTrusted(f"it is of another run or round: {str(words.get('meeting'))[:80]!r}")
        self._theirs = _text(words, "nonce")
        return _to_bytes(node=self.node, nonce=self.nonce, proof=self._prove("child"))

    def _answer(self, words: dict[str, Any]) -> bytes:
        node = words.get("node")
        if type(node) is not int or not 0 < node < 1 << 24:
            raise NotTrusted("it says no node")
        self.node, self._theirs = node, _text(words, "nonce")
        if self._theirs == self.nonce or not hmac.compare_digest(
            _text(words, "proof"), self._prove("child")
        ):
            raise NotTrusted("it does not know the token")
        self.is_done = True
        return _to_bytes(proof=self._prove("parent"))

    def _prove(self, role: str) -> str:
        nonces = (self.nonce, self._theirs) if self._is_parent else (self._theirs, self.nonce)
        said = json.dumps(["distdbg tree", role, PROTOCOL, self.meeting, self.node, *nonces])
        return hmac.new(self.token, said.encode(), hashlib.sha256).hexdigest()


def _to_bytes(**words: object) -> bytes:
    return json.dumps(words).encode()


def _from_bytes(frame: bytes) -> dict[str, Any]:
    try:
        words = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise NotTrusted("it says what is no JSON") from error
    if not isinstance(words, dict):
        raise NotTrusted("it says what is no object")
    return words


def _text(words: dict[str, Any], name: str) -> str:
    text = words.get(name)
    if not isinstance(text, str) or not text.isascii() or not 16 <= len(text) <= 128:
        raise NotTrusted(f"it says no {name}")
    return text
