"""The shape of the JSON of `distdbg analyze --json`: a table that the page about it is made from.

    fields named '...?' may be null; a list has the fields of its items

`faults` compares a document with the table. A field is never renamed, removed, or given another meaning
without a new number in `SCHEMA`; new ones may come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from distdbg.diagnose.finding import Kind, Role, Severity

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an object."""

    name: str
    type: str
    """'text', 'integer', 'number', 'boolean', 'time', 'ranks', 'texts', 'numbers', 'a', 'list of a'."""
    about: str
    is_optional: bool = False
    """Whether it may be null."""


def _words(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


#: By the name of an object; the document is a 'session'.
OBJECTS: Final[dict[str, tuple[Field, ...]]] = {
    "session": (
        Field("schema", "integer", f"{SCHEMA}"),
        Field("source", "text", "what was read: a path"),
        Field("format", "text", "`distdbg`, `torch flight recorder`, `logs` ..."),
        Field("run", "text", "name of the run; empty when it has none"),
        Field("attempt", "integer", "which start of the job this is, from 0"),
        Field("attempts", "integer", "how many starts there were"),
        Field("world_size", "integer", "number of ranks; 0 when nobody knows"),
        Field("is_live", "boolean", "whether some rank may still go on"),
        Field("at", "time", "when it was read, or the last sign of life", True),
        Field("verdict", "verdict", "what explains the rest"),
        Field("findings", "list of finding", "root cause first, then by severity and time"),
        Field("ranks", "list of rank", "in their order; those of which nothing is known are not there"),
        Field("groups", "list of group", "process groups"),
        Field("stacks", "list of stack", "those of the cause, then of ranks that wait"),
        Field("lacks", "texts", "what could not be read, or would make the verdict surer"),
    ),
    "verdict": (
        Field("what", "text", "one line"),
        Field("root", "integer", "index into `findings`; null: no cause was found", True),
        Field("has_faults", "boolean", "whether something is more than a note: exit code 1"),
    ),
    "finding": (
        Field("kind", "text", _words(Kind)),
        Field("severity", "text", _words(Severity)),
        Field("what", "text", "one line"),
        Field("ranks", "ranks", "of the cause; empty when no rank is it"),
        Field("victims", "ranks", "those that suffer from it"),
        Field("group", "text", "label of the process group; empty when it is about none"),
        Field("seq", "integer", "number of the op in its group; 0: none"),
        Field("at", "time", "since when", True),
        Field("evidence", "list of evidence", "what it is concluded from"),
        Field("edges", "list of edge", "who waits for whom"),
        Field("advice", "text", "one action; may be empty"),
        Field("numbers", "numbers", "what was measured, by name with its unit"),
        Field("follows", "list of finding", "what would not be there without it"),
    ),
    "evidence": (
        Field("text", "text", "one clause"),
        Field("rank", "integer", "whose", True),
        Field("ranks", "ranks", "all that it is true of"),
        Field("op", "op", "which op it is about", True),
        Field("site", "text", "`train.py:88 (step)`; may be empty"),
        Field("at", "time", "when", True),
        Field("source", "text", "file and line of a log that says so; may be empty"),
    ),
    "edge": (
        Field("rank", "integer", "who waits"),
        Field("on", "ranks", "for whom"),
        Field("is_any", "boolean", "whether one of `on` would be enough"),
        Field("text", "text", "in what"),
        Field("op", "op", "the same, as an op", True),
        Field("site", "text", "where; may be empty"),
        Field("since", "time", "since when", True),
    ),
    "op": (
        Field("rank", "integer", "whose op"),
        Field("name", "text", "the function that was called"),
        Field("kind", "text", "`all_reduce`, `send`, `new_group` ..."),
        Field("text", "text", "as messages call it: `all_reduce #4 on group 'dp'`"),
        Field("seq", "integer", "its number in the group, or among the messages to that peer"),
        Field("group", "text", "label; may be empty"),
        Field("status", "text", "`ok`, `in flight`, `timeout` ..."),
        Field("issued", "time", "when it was called", True),
        Field("started", "time", "when all ranks had come", True),
        Field("ended", "time", "when it ended; null: it has not", True),
        Field("site", "text", "file with its path, line and function; may be empty"),
        Field("stack", "texts", "the site and its callers"),
    ),
    "rank": (
        Field("rank", "integer", ""),
        Field("host", "text", "may be empty"),
        Field("pid", "integer", "0: not known"),
        Field("role", "text", _words(Role)),
        Field("state", "text", "what it did last, in words"),
        Field("ops", "integer", "how many ops are known"),
        Field("in_flight", "integer", "how many of them have not ended"),
        Field("last_op", "op", "the one that it waits in, or its last", True),
        Field("last_seen", "time", "when it last did anything", True),
        Field("source", "text", "where it was read from"),
        Field("lost", "numbers", "how much of what is not there"),
    ),
    "stack": (
        Field("ranks", "ranks", "that have it"),
        Field("what", "text", "what they are in; may be empty"),
        Field("is_cause", "boolean", "whether they are those of the cause"),
        Field("frames", "list of frame", "the innermost first"),
    ),
    "frame": (
        Field("site", "text", "file with its path, line and function"),
        Field("text", "text", "the line; empty where it cannot be shown"),
        Field("notes", "texts", "loops and conditions around it, and where an argument is from"),
    ),
    "group": (
        Field("name", "text", "equal on all members"),
        Field("label", "text", "what messages call it"),
        Field("ranks", "ranks", "members; empty when nobody said"),
        Field("backend", "text", "may be empty"),
    ),
}  # fmt: skip

_PLAIN: Final[dict[str, Any]] = {
    "text": str,
    "time": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def faults(value: Any, name: str = "session", path: str = "") -> Iterator[str]:
    """What of a document is not as the table says; nothing when all is."""
    if not isinstance(value, dict):
        yield f"{path or name}: is no object"
        return
    known = {field.name: field for field in OBJECTS[name]}
    yield from (f"{path}/{key}: is not in the table" for key in value.keys() - known.keys())
    for field in known.values():
        here = f"{path}/{field.name}"
        if field.name not in value:
            yield f"{here}: is missing"
        elif value[field.name] is None:
            if not field.is_optional:
                yield f"{here}: is null"
        else:
            yield from _faults_of(value[field.name], field.type, here)


def _faults_of(value: Any, type_: str, path: str) -> Iterator[str]:
    if type_ in OBJECTS:
        yield from faults(value, type_, path)
    elif type_ in _PLAIN:
        is_wrong = isinstance(value, bool) and type_ != "boolean"
        if is_wrong or not isinstance(value, _PLAIN[type_]):
            yield f"{path}: {value!r} is no {type_}"
    elif type_ == "numbers":
        if not isinstance(value, dict):
            yield f"{path}: is no object"
            return
        for key, number in value.items():
            yield from _faults_of(number, "number", f"{path}/{key}")
    else:
        item = {"ranks": "integer", "texts": "text"}.get(type_) or type_.removeprefix("list of ")
        if not isinstance(value, list):
            yield f"{path}: is no list"
            return
        for index, one in enumerate(value):
            yield from _faults_of(one, item, f"{path}/{index}")
