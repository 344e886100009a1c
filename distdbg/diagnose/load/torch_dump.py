"""Reads one file of torch's flight recorder: pickle or JSON, one rank or several, any version.

    for dump in read_dumps(Path("comm_lib_trace_rank_3")):
        dump.rank, dump.entries

Every key may be absent: versions differ, and so do backends. Values are checked
where they are used (`integer`, `text`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from distdbg.diagnose.load.restricted_pickle import MAX_PICKLE_NBYTES, read_plain
from distdbg.diagnose.load.torch_names import rank_of_file
from distdbg.errors import RecordError
from distdbg.record.regular_file import open_regular

#: Entries of one rank; torch keeps 2,000 by default. The newest are taken.
MAX_ENTRIES: Final = 1 << 18
MAX_RANK: Final = 1 << 24
#: In the year 2116.
MAX_WALL_NS: Final = 1 << 62
_KEYS: Final = frozenset(("entries", "pg_config", "pg_status", "nccl_comm_state"))
_RANK_KEY: Final = re.compile(r"\D{0,32}(\d{1,7})")

Entry = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Dump:
    """What one rank's recorder gave."""

    rank: int
    source: str
    version: str
    entries: list[Entry]
    pg_config: Mapping[str, Any] = field(default_factory=dict)
    pg_status: Mapping[str, Any] = field(default_factory=dict)
    left_out: int = 0
    """Older entries than were taken."""
    has_frames: bool = False
    library: str = ""
    """'2.27.5', of NCCL."""
    host: str = ""
    pid: int = 0
    written_ns: int = 0
    """Wall time at which the file was written last; a copy may be younger than the dump."""

    newest_ns: int = 0
    is_light: bool = False
    """Whether its entries are left in the file until they are needed."""

    def lighten(self) -> None:
        """Forget the entries: those of a thousand ranks together are larger than most memories."""
        self.entries, self.is_light = [], True

    def read_entries(self) -> list[Entry]:
        """The entries, from the file again when they were forgotten; RecordError when that has changed."""
        if not self.is_light:
            return self.entries
        return read_dumps(Path(self.source), rank=self.rank)[0].entries


def looks_like_dump(head: bytes) -> bool:
    """Whether a file that begins so may be a dump; it is read as one to know."""
    if head[:1] == b"\x80":
        return True
    start = head.lstrip()[:1]
    return start in (b"{", b"[") and any(f'"{key}"'.encode() in head for key in _KEYS)


def read_dumps(path: Path, *, rank: int | None = None) -> list[Dump]:
    """All ranks that the file is about; RecordError for what is no dump."""
    name = str(path)
    try:
        with open_regular(path) as file:
            written_ns = os.fstat(file.fileno()).st_mtime_ns
            data = file.read(MAX_PICKLE_NBYTES + 1) or b""
    except OSError as error:
        raise RecordError(f"{name}: {error.strerror or error}", path=name) from error
    if len(data) > MAX_PICKLE_NBYTES:
        raise RecordError(
            f"{name} is larger than {MAX_PICKLE_NBYTES >> 20} MiB: too large for a dump",
            path=name,
        )
    value = read_plain(data, name) if data[:1] == b"\x80" else _read_json(data, name)
    dumps = list(_dumps(value, name, rank_of_file(path.name) if rank is None else rank))
    for dump in dumps:
        dump.written_ns = written_ns
    if not dumps:
        raise RecordError(f"{name} is not a dump of torch's flight recorder", path=name)
    return dumps


def _read_json(data: bytes, name: str) -> object:
    try:
        return json.loads(data)
    except RecursionError:
        raise RecordError(f"{name} is JSON nested too deeply", path=name) from None
    except ValueError as error:
        raise RecordError(f"{name} is neither a pickle nor JSON: {error}", path=name) from None


def _dumps(value: object, name: str, rank: int | None) -> Iterator[Dump]:
    if isinstance(value, dict) and _KEYS & value.keys():
        own = rank if rank is not None else integer(value.get("rank"), -1)
        if not 0 <= own <= MAX_RANK:
            raise RecordError(
                f"{name} does not have its rank",
                path=name,
                hint="rename the file so that it ends in the rank: trace_rank_3",
            )
        yield _dump(value, name, own)
    elif isinstance(value, list) and value and _is_entry(value[0]):
        # The first versions wrote the entries and nothing else.
        yield from _dumps({"entries": value}, name, rank)
    elif isinstance(value, list):
        for index, item in enumerate(value[:MAX_RANK]):
            if isinstance(item, dict) and _KEYS & item.keys():
                yield from _dumps(item, name, integer(item.get("rank"), index))
    elif isinstance(value, dict):
        for key, item in value.items():
            found = _RANK_KEY.fullmatch(str(key)[:64])
            inner = _unwrapped(item, name)
            if found and isinstance(inner, dict) and _KEYS & inner.keys():
                yield from _dumps(inner, name, int(found[1]))


def _unwrapped(item: object, name: str) -> object:
    """A debug server gives the answer of each rank as a text."""
    if isinstance(item, str) and item.lstrip()[:1] == "{":
        return _read_json(item.encode("utf-8", "replace"), name)
    return item


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and ("profiling_name" in value or "record_id" in value)


def _dump(value: dict[str, Any], name: str, rank: int) -> Dump:
    given = value.get("entries", [])
    if not isinstance(given, list):
        raise RecordError(f"{name} has entries that are no list", path=name)
    left_out = max(0, len(given) - MAX_ENTRIES)
    entries = [entry for entry in given[left_out:] if isinstance(entry, dict)]
    return Dump(
        rank=rank,
        source=name,
        version=str(value.get("version", "?"))[:32],
        entries=entries,
        pg_config=_mapping(value.get("pg_config")),
        pg_status=_mapping(value.get("pg_status")),
        left_out=left_out,
        newest_ns=max((created_ns(entry) for entry in entries[-64:]), default=0),
        has_frames=any("frames" in entry for entry in entries[:64]),
        library=text(value.get("comm_lib_version", value.get("nccl_version"))),
        host=text(value.get("host", value.get("hostname"))),
        pid=integer(value.get("pid"), 0),
    )


# ------------------------------------------------------------------------------- values


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def integer(value: object, default: int) -> int:
    """A number of 64 bits, also written as text, as JSON dumps have some."""
    if isinstance(value, str) and len(value) < 24:
        try:
            value = int(value)
        except ValueError:
            return default
    if type(value) is int and -(2**63) < value < 2**63:
        return value
    return default


def text(value: object) -> str:
    return value[:1024] if isinstance(value, str) else ""


def created_ns(entry: Entry) -> int:
    """When the op was called, in wall time; 0 when nobody wrote it down."""
    return wall_ns(entry.get("time_created_ns")) or wall_ns(entry.get("time_created_us"), 1000)


def wall_ns(value: object, unit_ns: int = 1) -> int:
    """A wall time; 0 for what is none, and where nobody wrote it down."""
    found = integer(value, 0) * unit_ns
    return found if 0 < found < MAX_WALL_NS else 0
