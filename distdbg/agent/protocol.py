"""The local API as lines of JSON: what a server and a client say. Pure; knows no socket.

    server   {"distdbg": "agent", "protocol": 1, "run": "...", "host": "n14", "pid": 4711}
    client   {"id": 1, "do": "ranks"}
    server   {"id": 1, "ok": {...}}  or  {"id": 1, "error": {"type": "...", "what": "...", "hint": null}}
             {"id": 1, "event": {...}}     after a subscription, as often as something changes

Over TCP the first line of the server has a nonce, and the client's first line is its proof:
{"proof": "<HMAC-SHA256 of 'distdbg agent ' and the nonce, with the run's token, in hex>"}. The answer
is {"ok": true}, or the connection is closed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, Final

from distdbg.errors import DistError, UsageError

PROTOCOL: Final = 1
MOST_REQUEST_NBYTES: Final = 1 << 20
MOST_ANSWER_NBYTES: Final = 16 << 20
_PREFIX: Final = b"distdbg agent "
_MOST_DEPTH_TEXT: Final = "nested too deeply"


@dataclass(frozen=True, slots=True)
class Request:
    """One line of a client."""

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


def prove(token: bytes, nonce: str) -> str:
    """What only somebody who has the token can say to the nonce."""
    return hmac.new(token, _PREFIX + nonce.encode(), hashlib.sha256).hexdigest()


def is_proof(line: bytes, token: bytes, nonce: str) -> bool:
    """Whether a client's first line is the right one."""
    try:
        words = json.loads(line)
    except (ValueError, RecursionError):
        return False
    proof = words.get("proof") if isinstance(words, dict) else None
    if not isinstance(proof, str):
        return False
    return hmac.compare_digest(prove(token, nonce).encode(), proof.encode("utf-8", "replace"))


def read_request(line: bytes) -> Request:
    """BadLine for anything that is none."""
    try:
        words = json.loads(line)
    except RecursionError:
        raise BadLine(f"the request is {_MOST_DEPTH_TEXT}") from None
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
    if len(line) > MOST_ANSWER_NBYTES:
        return refuse(id_, UsageError(f"the answer would have {len(line):,} bytes"))
    return line


def tell(id_: int | str, value: Any) -> bytes:
    """The line of an event."""
    return encode({"id": id_, "event": value})


def refuse(id_: int | str | None, error: BaseException) -> bytes:
    """The line of an error."""
    what = error.what if isinstance(error, DistError) else str(error) or type(error).__name__
    facts = {
        "type": type(error).__name__,
        "what": what,
        "hint": error.hint if isinstance(error, DistError) else None,
    }
    return encode({"id": id_, "error": facts})


def encode(words: Any) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"
