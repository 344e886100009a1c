"""The protocol between the debugger of a rank and its clients: lines of JSON. Pure; knows no socket.

    server   {"distdbg": "debugger", "protocol": 1, "rank": 3, "pid": 4711, "run": "...",
              "state": "stopped" or "running", "why": "...", "site": "train.py:88 (step)",
              "mode": "line" or "terminal", "debuggable": true}
    client   {"attach": "eva, process 99", "size": [rows, columns]}
                                                  from now on the prompt is this client's
             {"line": "p x"}                      what was typed at the prompt
             {"complete": [text, line, begin, end]}
             {"interrupt": true} {"detach": true} {"continue": true}
             {"id": 1, "eval": "x.shape"}
             {"bytes": base64} {"size": [rows, columns]}     where the mode is "terminal"
    server   {"write": text} {"prompt": "(Pdb) "} {"completions": [...]} {"bytes": base64}
             {"stopped": {"why": ..., "site": ..., "mode": ...}}
             {"ended": why, "refused": true where it was never taken}
             {"notice": text}                     what has happened to the job meanwhile
             {"running": true, "traced": whether it is to stop again}
             {"id": 1, "value": text, "type": name} or {"id": 1, "error": text}

A client that says `line`, `complete`, `interrupt`, `bytes` or `size` first is taken as attached.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

PROTOCOL: Final = 1
#: What a client may say in one line, and what a rank does.
MAX_LINE_NBYTES: Final = 1 << 20
#: Longer texts go in several lines.
MAX_TEXT: Final = 1 << 16

Words = dict[str, Any]


class MalformedLine(Exception):
    """A line that is none of these."""


def hello(
    *,
    rank: int,
    pid: int,
    run: str,
    is_stopped: bool,
    why: str,
    site: str,
    mode: str,
    is_debuggable: bool,
) -> Words:
    """The server's first line."""
    return {
        "distdbg": "debugger",
        "protocol": PROTOCOL,
        "rank": rank,
        "pid": pid,
        "run": run,
        "state": "stopped" if is_stopped else "running",
        "why": why,
        "site": site,
        "mode": mode,
        "debuggable": is_debuggable,
    }


def encode(words: Words) -> bytes:
    """One line; surrogates and the like go as escapes."""
    return json.dumps(words, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Words:
    """BadLine for anything but an object."""
    try:
        words = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedLine("not a line of JSON") from None
    if not isinstance(words, dict):
        raise MalformedLine("not an object")
    return words


def cut_lines(inbox: bytearray) -> list[bytes]:
    """Take the whole lines out of what has come; BadLine when one is longer than any may be."""
    *lines, rest = inbox.split(b"\n")
    if len(rest) > MAX_LINE_NBYTES or any(len(line) > MAX_LINE_NBYTES for line in lines):
        raise MalformedLine(f"a line of more than {MAX_LINE_NBYTES} bytes")
    inbox[:] = rest
    return [bytes(line) for line in lines if line.strip()]


def text_lines(text: str) -> list[Words]:
    """What the program prints."""
    return [{"write": text[at : at + MAX_TEXT]} for at in range(0, len(text), MAX_TEXT)]


def from_base64(text: object) -> bytes:
    """BadLine for what is none."""
    if not isinstance(text, str):
        raise MalformedLine("'bytes' is no text")
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise MalformedLine("'bytes' is not base64") from None


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def read_size(value: object) -> tuple[int, int]:
    """Rows and columns of a terminal."""
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(type(one) is int and 0 < one < 10_000 for one in value)
    ):
        return value[0], value[1]
    raise MalformedLine("'size' is [rows, columns]")


def read_completion(value: object) -> tuple[str, str, int, int]:
    """Text, line, begin and end, as readline gives them."""
    match value:
        case [str(text), str(line), int(begin), int(end)]:
            return text, line, begin, end
    raise MalformedLine("'complete' is [text, line, begin, end]")
