"""The error file of a process: error.json with what ended it, in torch's format.

    {"message": {"message": "ValueError: no data",
                 "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1795310000"}},
     "distdbg": {"type", "what", "rank", "pid", "host", "wall_ns", "because_of", "waits_for", ...}}

A launcher names the file in DISTDBG_ERROR_FILE (TORCHELASTIC_ERROR_FILE). torch's own launcher reads
what is written here, and here is read what torch writes; then the second part is missing.
"""

from __future__ import annotations

import json
import os
import resource
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg import config
from distdbg.errors import (
    DebuggerQuit,
    DistError,
    JobAborted,
    OpTimeout,
    PeerLost,
    RendezvousError,
    format_error,
)
from distdbg.record.carried_traceback import read_carried, read_remote
from distdbg.record.durations import nbytes_text
from distdbg.record.host import host_name
from distdbg.record.raised_error import cause_of, own_rank_in, remote_text
from distdbg.record.recursion import recursion_hint
from distdbg.record.regular_file import open_regular, read_some
from distdbg.record.values import values_at

_MAX_NBYTES = 4 << 20
#: Letters of a text and of a traceback; the middle of longer ones is left out.
_MAX_TEXT = 20_000
_MAX_TRACE = 200_000
#: Letters of a message by which it is found in a traceback.
_MAX_QUOTED = 1000
_MAX_CAUSES = 32
_MAX_NOTES = 8
_MAX_NOTE = 500
_HINT = "hint: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    """What an error file says. Ranks are global."""

    text: str
    """'ValueError: no data', all lines."""
    traceback: str = ""
    """Without the lines of its message after the first."""
    wall_ns: int = 0
    """0: not known."""
    type: str = ""
    inner: str = ""
    """The traceback that came with it of where it was raised first: in a worker, on another rank."""
    details: tuple[str, ...] = ()
    cause: str = ""
    """'OSError: no such shard': what it was raised from."""
    hint: str | None = None
    notes: tuple[str, ...] = ()
    """What was added to an error that is not of this package (add_note)."""
    because_of: tuple[int, ...] = ()
    """The ranks without whose end, or verdict, this one would not have failed."""
    waits_for: tuple[int, ...] = ()
    """The ranks that did not come in time."""
    aborted_by: str = ""
    """The one that aborted the job: 'the agent', the name of a person; '' where nobody has."""
    values: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    """By file and line of its stack: variables, and what they held ('= 15', 'is 6 long')."""
    rank: int | None = None
    pid: int | None = None
    """The process that wrote it; a nested launcher passes on what another one wrote."""
    code: int | None = None
    """The exit code that a nested launcher knows."""
    is_of_child: bool = False
    """Whether a child of multiprocessing wrote it, whose parent may go on."""

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


def error_file_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where this process is to write; None: nobody asks for it."""
    path = config.read_setting("DISTDBG_ERROR_FILE", environ)
    return Path(str(path)) if path else None


def write_error_file(
    error: BaseException, path: Path | None = None, *, is_of_child: bool = False
) -> bool:
    """Say what ended this process; the first error of a process stays. Whether it was written.

    Never raises: whoever calls this is on the way out already.
    """
    try:
        path = path or error_file_path()
        if path is None or _is_reported(path):
            return False
        pid, wall_ns = os.getpid(), time.time_ns()
        _write(path, to_json(error, os.environ, pid=pid, wall_ns=wall_ns, is_of_child=is_of_child))
    except (OSError, ValueError, DistError):
        return False
    return True


def copy_error_file(path: Path, source: Path, code: int | None = None) -> bool:
    """Pass on what a child wrote to `source`, with its exit code. Whether that could be done."""
    try:
        found = _read_json(source)
        message = found.get("message")
        if code is not None and isinstance(message, dict):
            message["errorCode"] = code
        _write(path, json.dumps(found))
    except (OSError, ValueError):
        return False
    return True


def read_error_file(path: Path) -> ErrorFacts | None:
    """What a process, of distdbg or torch, wrote; None: nothing, or nothing that can be read."""
    try:
        found = _read_json(path)
        changed_ns = path.stat().st_mtime_ns
    except (OSError, ValueError):
        return None
    message, ours = found.get("message"), found.get("distdbg")
    ours = ours if isinstance(ours, dict) else {}
    extra: Any = message.get("extraInfo") if isinstance(message, dict) else None
    extra = extra if isinstance(extra, dict) else {}
    text = message.get("message") if isinstance(message, dict) else message
    if not isinstance(text, str):
        return None
    # torch's time is in seconds: too coarse to tell who was first.
    wall_ns = ours.get("wall_ns") if isinstance(ours.get("wall_ns"), int) else changed_ns
    trace, hint, code = extra.get("py_callstack"), ours.get("hint"), message_code(message)
    remote = ours.get("remote")
    carried = read_carried(text, _number(ours.get("own_rank")))
    inner = read_remote(remote, text) if isinstance(remote, str) else carried
    trace = _cut_quoted(trace, text) if isinstance(trace, str) else ""
    text = text if carried is None else carried.text
    return ErrorFacts(
        text=text,
        traceback=trace,
        wall_ns=int(wall_ns or 0),
        type=_type_of(ours, text) if carried is None else carried.type,
        inner="" if inner is None else inner.traceback,
        details=tuple(str(line) for line in _list(ours.get("details"))),
        cause=str(ours.get("cause") or ""),
        hint=hint if isinstance(hint, str) else None,
        notes=tuple(str(line) for line in _list(ours.get("notes"))),
        because_of=_ranks(ours.get("because_of")),
        waits_for=_ranks(ours.get("waits_for")),
        aborted_by=str(ours.get("aborted_by") or ""),
        values=_values(ours.get("values")),
        rank=_number(ours.get("rank")),
        pid=_number(ours.get("pid")),
        code=code,
        is_of_child=ours.get("is_of_child") is True,
    )


def _values(found: object) -> dict[tuple[str, int], dict[str, str]]:
    """As they were written; what is of another form is passed over."""
    values: dict[tuple[str, int], dict[str, str]] = {}
    for one in _list(found):
        match one:
            case {"file": str(file), "line": int(line), "values": dict(known)}:
                texts = {str(name): str(text) for name, text in known.items()}
                # A comprehension, and the function that it stands in, are at one line.
                values[file, line] = texts | values.get((file, line), {})
    return values


def message_code(message: object) -> int | None:
    """The exit code that a nested launcher wrote into a message."""
    return _number(message.get("errorCode")) if isinstance(message, dict) else None


def to_json(
    error: BaseException,
    environ: Mapping[str, str],
    *,
    pid: int,
    wall_ns: int,
    is_of_child: bool = False,
) -> str:
    """The content of the file."""
    text = format_error(error)
    trace = "".join(traceback.format_exception(error))
    known = find_known(error)
    rank = environ.get("RANK", "")
    ours: dict[str, Any] = {
        "type": type(error).__name__,
        "pid": pid,
        "host": host_name(environ),
        "wall_ns": wall_ns,
        "because_of": list(because_of(error)),
        "waits_for": list(waits_for(error)),
        "aborted_by": next((e.by for e in _causes(error) if isinstance(e, JobAborted)), ""),
        "cause": _cut(cause_of(error), _MAX_TEXT),
        "values": values_at(error),
    }
    if is_of_child:
        ours["is_of_child"] = True
    if rank.isdecimal():
        ours["rank"] = int(rank)
    if (own_rank := own_rank_in(error)) is not None:
        ours["own_rank"] = own_rank
    if remote := remote_text(error):
        ours["remote"] = _cut(remote, _MAX_TEXT)
    if known is not None:
        ours |= {"details": [str(line) for line in known.details[:64]], "hint": known.hint}
    else:
        ours |= _of_notes(error)
    if isinstance(error, MemoryError) and (limit := _memory_limit()):
        ours["hint"] = (
            f"its address space is limited to {limit} (ulimit -v): raise the limit, or use less memory"
        )
    if isinstance(error, RecursionError) and (hint := recursion_hint(error)):
        ours["hint"] = hint
    extra = {"py_callstack": _cut(trace, _MAX_TRACE), "timestamp": str(wall_ns // 10**9)}
    message = {"message": _cut(text, _MAX_TEXT), "extraInfo": extra}
    return json.dumps({"message": message, "distdbg": ours})


def _of_notes(error: BaseException) -> dict[str, Any]:
    """What was added to an error on its way (PEP 678); one that begins with 'hint: ' is the hint."""
    lines = [line for note in getattr(error, "__notes__", ()) for line in str(note).splitlines()]
    hints = [line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)]
    notes = [_cut(line, _MAX_NOTE) for line in lines if not line.startswith(_HINT)]
    return {"notes": notes[:_MAX_NOTES]} | ({"hint": hints[0]} if hints else {})


def _memory_limit() -> str:
    """Return the limit of addresses, where it is lower than the machine's memory; ''."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "" if limit == resource.RLIM_INFINITY else nbytes_text(limit)


def find_known(error: BaseException) -> DistError | None:
    """The error of distdbg that this one is, or comes from."""
    return next((one for one in _causes(error) if isinstance(one, DistError)), None)


def because_of(error: BaseException) -> tuple[int, ...]:
    """The ranks whose end, or whose fault, is the cause of an error; empty: it is a cause itself."""
    for one in _causes(error):
        if isinstance(one, PeerLost):
            return (one.peer,) if one.peer >= 0 else ()
        if isinstance(one, (JobAborted, DebuggerQuit)):
            return tuple(one.ranks)
    return ()


def waits_for(error: BaseException) -> tuple[int, ...]:
    """The ranks that did not come in time."""
    for one in _causes(error):
        if isinstance(one, (OpTimeout, RendezvousError)):
            return tuple(one.missing)
    return ()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, or while that was handled."""
    seen = 0
    current: BaseException | None = error
    while current is not None and seen < _MAX_CAUSES:
        yield current
        seen += 1
        context = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or context


# ---------------------------------------------------------------------------------------- files


def _is_reported(path: Path) -> bool:
    """Whether this very process wrote it before: what came first is the reason."""
    facts = read_error_file(path)
    return facts is not None and facts.pid == os.getpid()


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    draft.replace(path)  # a process that is killed meanwhile leaves a whole file or none


def _read_json(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        content = read_some(file, _MAX_NBYTES)
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _cut_quoted(trace: str, text: str) -> str:
    """A traceback without what the message at its end quotes, which may look like one itself."""
    first, _, quoted = text.partition("\n")
    at = trace.rfind(f"{first}\n{quoted[:_MAX_QUOTED]}") if quoted else -1
    return trace if at < 0 else f"{trace[: at + len(first)]}\n"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"


def _type_of(ours: Mapping[str, Any], text: str) -> str:
    name = ours.get("type")
    if isinstance(name, str):
        return name
    before, colon, _ = text.partition(":")
    return before if colon and before.isidentifier() else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ranks(value: object) -> tuple[int, ...]:
    return tuple(one for one in _list(value) if isinstance(one, int))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
