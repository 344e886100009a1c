"""A program as Python that a person can read, for the report of a failure; pure."""

from __future__ import annotations

from typing import Any

from differential.groups import make_groups

_OWN = ("do", "group", "async", "delay")


def to_script(program: dict[str, Any]) -> str:
    """One line per step."""
    groups = make_groups(program["world_size"])
    lines = [f"# {program['world_size']} ranks; contents follow from the number of the step"]
    for index, step in enumerate(program["steps"]):
        ranks = ",".join(map(str, groups[step["group"]]))
        facts = ", ".join(f"{key}={value!r}" for key, value in step.items() if key not in _OWN)
        line = f"step {index}: {step['do']}({facts})  # ranks {ranks}"
        if step["async"]:
            line += f"; async, waited for {_delays(step, groups)} steps later"
        lines.append(line)
    return "\n".join(lines)


def _delays(step: dict[str, Any], groups: list[list[int]]) -> str:
    delays = [step["delay"][rank] for rank in groups[step["group"]]]
    return str(delays[0]) if len(set(delays)) == 1 else "/".join(map(str, delays))
