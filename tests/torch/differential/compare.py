"""What differs between the results that two libraries gave for one program; pure."""

from __future__ import annotations

from typing import Any

Results = list[Any]  # per rank: the entries of interpret.py, or None if the rank gave none


def find_differences(program: dict[str, Any], expected: Results, got: Results) -> list[str]:
    """One line per rank and step that differ; empty if the libraries agree.

    What an illegal call raised is not compared, only that it raised. Some promises are the second
    library's alone, and count against it only: inputs stay unchanged, bools are 0 or 1.
    """
    lines = []
    for rank in range(program["world_size"]):
        if expected[rank] is None or got[rank] is None:
            lines.append(f"rank {rank}: no results, because another rank had failed")
            continue
        for index, step in enumerate(program["steps"]):
            wanted, entry = expected[rank][index], got[rank][index]
            place = f"rank {rank}, step {index} ({step['do']})"
            lines += [f"{place}: {text}" for text in _differences(wanted, entry)]
    return lines


def _differences(wanted: Any, entry: Any) -> list[str]:
    if wanted is None or entry is None:
        return [] if wanted is entry else [f"expected {wanted}, got {entry}"]
    if "error" in wanted or "error" in entry:
        # Also when both fail: no program may ask the first library for what it cannot do.
        return [f"expected {_outcome(wanted)}, got {_outcome(entry)}"]
    if "raised" in wanted:
        if wanted["raised"] == entry["raised"]:
            return []
        return [f"expected {_outcome(wanted)}, got {_outcome(entry)}"]
    lines = []
    if wanted["returned"] != entry["returned"]:
        lines.append(f"returned {entry['returned']!r} instead of {wanted['returned']!r}")
    for place, (x, y) in enumerate(zip(wanted["outputs"], entry["outputs"], strict=True)):
        if y.get("odd_bools"):
            lines.append(f"output {place} has bools of other bytes than 0 and 1")
        if any(x[key] != y[key] for key in ("dtype", "shape", "sha1")):
            lines.append(f"output {place} is {_brief(y)} instead of {_brief(x)}")
    lines += [f"input {place} was changed" for place in entry["changed_inputs"]]
    return lines


def _outcome(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"{entry['error']}: {entry['text']}"
    if entry.get("raised"):
        return f"{entry['class']}: {entry['text']}"
    return "no error"


def _brief(array: dict[str, Any]) -> str:
    return f"{array['dtype']}{array['shape']} {', '.join(array['head'])} ({array['sha1'][:8]})"
