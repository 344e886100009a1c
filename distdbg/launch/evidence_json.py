"""Evidence as text, for launchers of other hosts: each can then tell who failed first. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final

from distdbg.launch.evidence import Evidence, RecordFacts
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts
from distdbg.record.format import Exit

#: Of texts on the way; their end says most.
_MOST_TEXT: Final = 8_000


def to_json(evidence: Evidence) -> str:
    """What `from_json` takes; long texts are cut."""
    if evidence.error is not None:
        error = evidence.error
        cut = replace(error, text=error.text[:_MOST_TEXT], traceback=error.traceback[-_MOST_TEXT:])
        evidence = replace(evidence, error=cut)
    return json.dumps(asdict(evidence))


def from_json(text: str | bytes) -> Evidence:
    """ValueError for what is none."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("end"), dict):
        raise ValueError("not the evidence of a rank")
    error, record = found.get("error"), found.get("record")
    try:
        return Evidence(
            end=RankEnd.from_json(json.dumps(found["end"])),
            error=ErrorFacts(**_known(ErrorFacts, error)) if error else None,
            error_file=str(found.get("error_file", "")),
            record=RecordFacts(**_known(RecordFacts, record)) if record else None,
            stderr_file=str(found.get("stderr_file", "")),
            stderr_tail=tuple(map(str, found.get("stderr_tail", ()))),
        )
    except (TypeError, AttributeError) as wrong:
        raise ValueError(str(wrong)) from None


def _known(cls: type[ErrorFacts | RecordFacts], found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that this version knows; lists were tuples, and a number was an Exit."""
    names = {field.name for field in fields(cls)}
    facts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name in names
    }
    if facts.get("how") is not None:
        facts["how"] = Exit(facts["how"])
    return facts
