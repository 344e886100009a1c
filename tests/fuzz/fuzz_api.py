"""Requests to an agent, a little wrong: each line is answered, by a result or an error that was meant."""

from __future__ import annotations

import json
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from distdbg.agent.host_agent import HostAgent
from distdbg.client.protocol import BadLine
from distdbg.errors import DistError
from distdbg.record.folders import record_name
from tests.fuzz import harness
from tests.support.record_examples import build_short

REQUESTS: tuple[dict[str, Any], ...] = (
    {"do": "about"}, {"do": "runs"}, {"do": "ranks"}, {"do": "groups"}, {"do": "ops", "ranks": [0]},
    {"do": "findings"}, {"do": "verdict", "unless": "0.1"}, {"do": "waits"},
    {"do": "subscribe", "to": ["ranks", "findings", "verdict"]},
    {"do": "stacks", "ranks": [1], "native": False, "limit_s": 5}, {"do": "pause"}, {"do": "resume"},
    {"do": "abort", "what": "w", "type": "stopped", "ranks": [0], "hint": "h", "by": "ada"},
    {"do": "breakpoints"}, {"do": "break", "rule": "rank=3,kind=barrier"}, {"do": "clear", "breakpoint": 1},
    {"do": "continue", "ranks": [0]}, {"do": "via", "host": "n02"}, {"do": "via", "rank": 3},
    {"do": "debug", "rank": 0}, {"do": "totals"}, {"do": "stop", "kill": False}, {"do": "counts"},
    {"do": "bars", "ranks": [0], "since": {}, "since_ns": 5, "most": 10},
    {"do": "op", "group": "0", "seq": 1}, {"do": "op", "rank": 0, "number": 1},
    {"do": "history", "rank": 0, "most": 5, "before": 9}, {"do": "rank", "rank": 0},
    {"do": "log", "after": 0, "most": 5, "ranks": [0]}, {"do": "gpus"},
)  # fmt: skip
_ANSWER_S = 8.0
_AT_ONCE = 8


def one(chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / record_name(0)).write_bytes(build_short().to_bytes())
        agent = HostAgent(Path(folder), "run-a", "n01")
        ours, theirs = socket.socketpair()
        try:
            theirs.setblocking(False)
            ours.setblocking(False)
            agent.server.adopt(theirs)
            agent.tick(time.monotonic_ns())
            _talk(agent, ours, chance)
        finally:
            ours.close()
            agent.close()


def _talk(agent: HostAgent, ours: socket.socket, chance: random.Random) -> None:
    inbox = bytearray()
    _read(agent, ours, inbox)  # its first words
    for number in range(_AT_ONCE):
        request = {"id": number, **chance.choice(REQUESTS)}
        if chance.random() < 0.9:
            request = harness.mutate(request, chance)
        line = json.dumps(request).encode()
        if chance.random() < 0.05:
            line = harness.spoil(line, chance).replace(b"\n", b"")
        if not line.strip():
            continue
        ours.send(line + b"\n")
        answer = _read(agent, ours, inbox)
        if answer is None:
            return  # it was dropped, or became a pipe
        while "event" in answer:
            answer = _read(agent, ours, inbox) or {"ended": ""}
        if "ended" in answer:
            return
        assert ("ok" in answer) != ("error" in answer), answer
        kind = answer.get("error", {}).get("type", "DistError")
        assert kind in _meant(), f"{line[:300]!r} is answered by {answer['error']}"


def _meant() -> set[str]:
    """The errors that somebody has thought of."""
    found, left = {BadLine.__name__}, [DistError]
    while left:
        kind = left.pop()
        found.add(kind.__name__)
        left += kind.__subclasses__()
    return found


def _read(agent: HostAgent, ours: socket.socket, inbox: bytearray) -> dict[str, Any] | None:
    until = time.monotonic() + _ANSWER_S
    while b"\n" not in inbox:
        for key, mask in agent.selector.select(0.02):
            key.data(mask)
        try:
            data = ours.recv(1 << 16)
        except BlockingIOError:
            assert time.monotonic() < until, "no answer"
            continue
        except ConnectionError:
            return None
        if not data:
            return None
        inbox += data
    line, _, rest = bytes(inbox).partition(b"\n")
    inbox[:] = rest
    words: dict[str, Any] = json.loads(line)
    return words


if __name__ == "__main__":
    harness.main(one, "fuzz_api", __doc__)
