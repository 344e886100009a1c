"""The shape of the JSON of `distdbg analyze --json`: a table that the page about it is made from.

    fields named '...?' may be null; a list has the fields of its items

`faults` compares a document with the table. A field is never renamed, removed, or given another meaning
without a new number in `SCHEMA`; new ones may come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from distdbg.diagnose.finding import FINDING_KINDS, Role, Severity
from distdbg.diagnose.traits import FactKind, StackRole, Trait

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class SchemaKey:
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
OBJECTS: Final[dict[str, tuple[SchemaKey, ...]]] = {
    "session": (
        SchemaKey("schema", "integer", f"{SCHEMA}"),
        SchemaKey("source", "text", "what was read: a path"),
        SchemaKey("format", "text", "`distdbg`, `torch flight recorder`, `logs` ..."),
        SchemaKey("run", "text", "name of the run; empty when it has none"),
        SchemaKey("attempt", "integer", "which start of the job this is, from 0"),
        SchemaKey("attempts", "integer", "how many starts there were"),
        SchemaKey("world_size", "integer", "number of ranks; 0 when nobody knows"),
        SchemaKey("is_live", "boolean", "whether some rank may still go on"),
        SchemaKey("at", "time", "when it was read, or the last sign of life", True),
        SchemaKey("verdict", "verdict", "what explains the rest"),
        SchemaKey("findings", "list of finding", "root cause first, then by severity and time"),
        SchemaKey("ranks", "list of rank", "in their order; those of which nothing is known are not there"),
        SchemaKey("groups", "list of group", "process groups"),
        SchemaKey("stacks", "list of stack", "those of the cause, then of ranks that wait"),
        SchemaKey("lacks", "texts", "what could not be read, or would make the verdict surer"),
    ),
    "verdict": (
        SchemaKey("what", "text", "one line"),
        SchemaKey("root", "integer", "index into `findings`; null: no cause was found", True),
        SchemaKey("has_faults", "boolean", "whether something is more than a note: exit code 1"),
    ),
    "finding": (
        SchemaKey("kind", "text", _words(FINDING_KINDS)),
        SchemaKey("severity", "text", _words(Severity)),
        SchemaKey("what", "text", "one line"),
        SchemaKey("ranks", "ranks", "of the cause; empty when no rank is it"),
        SchemaKey("victims", "ranks", "those that suffer from it"),
        SchemaKey("group", "text", "label of the process group; empty when it is about none"),
        SchemaKey("seq", "integer", "number of the op in its group; 0: none"),
        SchemaKey("at", "time", "since when", True),
        SchemaKey("evidence", "list of evidence", "what it is concluded from"),
        SchemaKey("edges", "list of edge", "who waits for whom"),
        SchemaKey("advice", "text", "one action; may be empty"),
        SchemaKey("numbers", "numbers", "what was measured, by name with its unit"),
        SchemaKey("traits", "texts", _words(Trait)),
        SchemaKey("follows", "list of finding", "what would not be there without it"),
    ),
    "evidence": (
        SchemaKey("text", "text", "one clause"),
        SchemaKey("rank", "integer", "whose", True),
        SchemaKey("ranks", "ranks", "all that it is true of"),
        SchemaKey("op", "op", "which op it is about", True),
        SchemaKey("site", "text", "`train.py:88 (step)`; may be empty"),
        SchemaKey("at", "time", "when", True),
        SchemaKey("source", "text", "file and line of a log that says so; may be empty"),
        SchemaKey("kind", "text", _words(FactKind), True),
        SchemaKey("detail", "text", "the part that is news where the rest is known; may be empty"),
    ),
    "edge": (
        SchemaKey("rank", "integer", "who waits"),
        SchemaKey("on", "ranks", "for whom"),
        SchemaKey("is_any", "boolean", "whether one of `on` would be enough"),
        SchemaKey("text", "text", "in what"),
        SchemaKey("op", "op", "the same, as an op", True),
        SchemaKey("site", "text", "where; may be empty"),
        SchemaKey("since", "time", "since when", True),
    ),
    "op": (
        SchemaKey("rank", "integer", "whose op"),
        SchemaKey("name", "text", "the function that was called"),
        SchemaKey("kind", "text", "`all_reduce`, `send`, `new_group` ..."),
        SchemaKey("text", "text", "as messages call it: `all_reduce #4 on group 'dp'`"),
        SchemaKey("seq", "integer", "its number in the group, or among the messages to that peer"),
        SchemaKey("group", "text", "label; may be empty"),
        SchemaKey("status", "text", "`ok`, `in flight`, `timeout` ..."),
        SchemaKey("issued", "time", "when it was called", True),
        SchemaKey("started", "time", "when all ranks had come", True),
        SchemaKey("ended", "time", "when it ended; null: it has not", True),
        SchemaKey("site", "text", "file with its path, line and function; may be empty"),
        SchemaKey("stack", "texts", "the site and its callers"),
    ),
    "rank": (
        SchemaKey("rank", "integer", ""),
        SchemaKey("host", "text", "may be empty"),
        SchemaKey("pid", "integer", "0: not known"),
        SchemaKey("role", "text", _words(Role)),
        SchemaKey("state", "text", "what it did last, in words"),
        SchemaKey("ops", "integer", "how many ops are known"),
        SchemaKey("in_flight", "integer", "how many of them have not ended"),
        SchemaKey("last_op", "op", "the one that it waits in, or its last", True),
        SchemaKey("last_seen", "time", "when it last did anything", True),
        SchemaKey("source", "text", "where it was read from"),
        SchemaKey("lost", "numbers", "how much of what is not there"),
    ),
    "stack": (
        SchemaKey("ranks", "ranks", "that have it"),
        SchemaKey("what", "text", "what they are in; may be empty"),
        SchemaKey("is_cause", "boolean", "whether they are those of the cause"),
        SchemaKey("role", "text", _words(StackRole)),
        SchemaKey("frames", "list of frame", "the innermost first"),
    ),
    "frame": (
        SchemaKey("site", "text", "file with its path, line and function"),
        SchemaKey("text", "text", "the line; empty where it cannot be shown"),
        SchemaKey("notes", "texts", "loops and conditions around it, and where an argument is from"),
    ),
    "group": (
        SchemaKey("name", "text", "equal on all members"),
        SchemaKey("label", "text", "what messages call it"),
        SchemaKey("ranks", "ranks", "members; empty when nobody said"),
        SchemaKey("backend", "text", "may be empty"),
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
