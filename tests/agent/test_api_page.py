"""The session on the page about the API, said to a real agent: its answers have the shape shown there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distdbg.control import sockets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "agent-api.md"


def read_session() -> list[tuple[str, Any]]:
    block = PAGE.read_text().split("```session\n")[1].split("```")[0]
    return [(line[0], json.loads(line[2:])) for line in block.splitlines()]


def shape(value: Any) -> Any:
    """The names in a value, and the first of each list."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None


def test_an_agent_answers_as_the_page_says(start_job: Callable[..., Any]) -> None:
    job = start_job("if rank == 1:\n    time.sleep(600)\ndist.all_reduce(x)\n")
    with job.connect() as client:
        row = job.await_row(client, 0, lambda row: row["state"] == "waiting")
        assert row["state"] == "waiting"
    with sockets.connect(job.sockets[0], 10.0) as sock:
        lines = sock.makefile("rb")
        for who, words in read_session():
            if who == ">":
                sock.sendall(json.dumps(words).encode() + b"\n")
                continue
            said = json.loads(lines.readline())
            while "event" in said:
                said = json.loads(lines.readline())
            said.get("ok", {}).pop("how", None)
            words.get("ok", {}).pop("how", None)
            assert shape(said) == shape(words), said
        lines.close()
