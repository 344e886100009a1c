from __future__ import annotations

import json

from distdbg.launch.events import EventLog


def test_an_event_is_one_line_of_json_with_its_time() -> None:
    lines: list[str] = []
    log = EventLog("console", lines.append, iter([7, 8]).__next__)
    log.write_event("restart", reason="rank 0\nfailed", used=1)
    log.write_event("end", wall_ns=3, rank=0)
    assert [json.loads(line) for line in lines] == [
        {"event": "restart", "wall_ns": 7, "reason": "rank 0\nfailed", "used": 1},
        {"event": "end", "wall_ns": 3, "rank": 0},
    ]
    assert not any("\n" in line for line in lines)


def test_the_null_handler_says_nothing() -> None:
    lines: list[str] = []
    EventLog("null", lines.append, lambda: 0).write_event("done", exit_code=0)
    assert lines == []
