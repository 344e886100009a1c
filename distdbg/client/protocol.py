"""The protocol of the local API: lines of JSON between server and client. Pure.

    server   {"distdbg": "agent", "protocol": 2, "run": "...", "host": "n14", "pid": 4711}
    client   {"id": 1, "do": "ranks"}
    server   {"id": 1, "ok": {...}}  or  {"id": 1, "error": {"type": "...", "what": "...", "hint": null}}
             {"id": 1, "event": {...}}     after a subscription, as often as something changes

Over TCP both prove first that they have the run's token, the server before the client:

    server   {"distdbg": "agent", "protocol": 2, "run": "...", ..., "nonce": s}
    client   {"nonce": c, "dialled": "10.0.0.7:7000"}
    server   {"proof": HMAC(token, ["distdbg agent", 2, "server", run, dialled, s, c])}
    client   {"proof": HMAC(token, ["distdbg agent", 2, "client", run, dialled, s, c])}
    server   {"ok": true}

HMAC-SHA256 in hex, over the list as JSON without blanks. The token is the run's, derived from the user's
key. The server proves nothing at an address that is not its own, so nobody can relay the proof
under another address.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from distdbg.control.dialled_address import derive_token
from distdbg.errors import DistError, UsageError

PROTOCOL: Final = 2
MAX_REQUEST_NBYTES: Final = 1 << 20
MAX_ANSWER_NBYTES: Final = 16 << 20
_NONCE_NBYTES: Final = 16
#: Why the server proves nothing to a client that has dialled an address which is not its own.
ELSEWHERE: Final = "it is not at the address that was dialled"
_MAX_DEPTH_TEXT: Final = "nested too deeply"


@dataclass(frozen=True, slots=True)
class Request:
    id: int | str
    do: str
    arguments: dict[str, Any] = field(default_factory=dict)


class BadLine(Exception):
    """A line that is no request; `id` is what can be answered to."""

    def __init__(self, what: str, id_: int | str | None = None) -> None:
        super().__init__(what)
        self.id = id_


def hello(run: str, host: str, pid: int, nonce: str | None = None) -> bytes:
    """The server's first line."""
    words: dict[str, Any] = {
        "distdbg": "agent",
        "protocol": PROTOCOL,
        "run": run,
        "host": host,
        "pid": pid,
    }
    if nonce is not None:
        words["nonce"] = nonce
    return encode(words)


def speaks_tls() -> bytes:
    """What a server that speaks TLS says in clear to a client that does not."""
    return encode({"distdbg": "agent", "tls": True})


def make_nonce() -> str:
    return secrets.token_hex(_NONCE_NBYTES)


@dataclass(slots=True)
class Proof:
    """What the two ends of a TCP connection prove to each other; each has one."""

    token: bytes
    """The run's: see `agent_token`."""
    run: str
    server_nonce: str
    client_nonce: str = ""
    dialled: str = ""

    def of(self, role: Literal["server", "client"]) -> str:
        """What only an end that has the token can say."""
        words = ["distdbg agent", PROTOCOL, role, self.run, self.dialled]
        said = json.dumps(
            [*words, self.server_nonce, self.client_nonce], separators=(",", ":")
        ).encode()
        return hmac.new(self.token, said, hashlib.sha256).hexdigest()

    def is_of(self, role: Literal["server", "client"], words: Any) -> bool:
        """Whether a line has the proof of the other end."""
        proof = words.get("proof") if isinstance(words, dict) else None
        return isinstance(proof, str) and hmac.compare_digest(
            self.of(role).encode(), proof.encode("utf-8", "replace")
        )

    def take_challenge(self, words: Any) -> bool:
        """The client's first line; False when it is none."""
        nonce = words.get("nonce") if isinstance(words, dict) else None
        dialled = words.get("dialled") if isinstance(words, dict) else None
        if not isinstance(nonce, str) or not _is_nonce(nonce) or nonce == self.server_nonce:
            return False
        if not isinstance(dialled, str) or len(dialled) > 64 or not dialled.isascii():
            return False
        self.client_nonce, self.dialled = nonce, dialled
        return True


def agent_token(key: bytes, run: str) -> bytes:
    """The token of a run's agents, from the user's key."""
    return derive_token(key, "agent", run)


def _is_nonce(text: str) -> bool:
    return text.isascii() and 2 * _NONCE_NBYTES <= len(text) <= 128


def read_words(line: bytes) -> Any:
    """A line before the proof; None for one that is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def read_request(line: bytes) -> Request:
    """BadLine for anything that is none."""
    try:
        words = json.loads(line)
    except RecursionError:
        raise BadLine(f"the request is {_MAX_DEPTH_TEXT}") from None
    except ValueError as error:
        raise BadLine(f"the request is not JSON: {error}") from None
    if not isinstance(words, dict):
        raise BadLine("the request is not an object")
    id_ = words.pop("id", None)
    if isinstance(id_, bool) or not isinstance(id_, (int, str)) or len(str(id_)) > 64:
        raise BadLine("the request has no 'id' that is a number or a short text")
    do = words.pop("do", None)
    if not isinstance(do, str):
        raise BadLine("the request has no 'do' that names a method", id_)
    return Request(id_, do, words)


def answer(id_: int | str, value: Any) -> bytes:
    """The line of a result; an error when it would be longer than any client takes."""
    line = encode({"id": id_, "ok": value})
    if len(line) > MAX_ANSWER_NBYTES:
        return refuse(id_, UsageError(f"the answer would have {len(line):,} bytes"))
    return line


def tell(id_: int | str, value: Any) -> bytes:
    return encode({"id": id_, "event": value})


def refuse(id_: int | str | None, error: BaseException) -> bytes:
    what = error.what if isinstance(error, DistError) else str(error) or type(error).__name__
    facts = {
        "type": type(error).__name__,
        "what": what,
        "hint": error.hint if isinstance(error, DistError) else None,
    }
    return encode({"id": id_, "error": facts})


def encode(words: Any) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"
