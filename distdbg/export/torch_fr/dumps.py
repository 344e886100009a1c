"""A folder of dumps: one file per rank, as torch's flight recorder leaves them, for torch's own analyzer.

    torchfrtrace RUN.torch-fr
    python -m torch.distributed.flight_recorder.fr_trace RUN.torch-fr

Each rank is read twice: torch's analyzer is misled by ops of which only some sides are there, and which
those are is known when all ranks have been looked at (`whole_ops.py`). A dump is a pickle of a dict, and one
value of it, the list of entries, is written while it is made:

    {..., "entries": [      PROTO 2, the dict as `pickle` writes it, the key, an empty list
      batch, batch, ...     each: MARK, items, APPENDS
    ], ...}                 SETITEM, what else the dict has: MARK, keys and values, SETITEMS; STOP

A pickle is a program for a machine with a stack, so what adds items to the list on top of the stack can be
taken from the pickle of a list of its own: all after its PROTO, EMPTY_LIST and BINPUT 0; likewise for a
dict. Each part counts its memo from 0 and reads only what it has put there itself.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from distdbg.errors import RecordError, format_ranks
from distdbg.export.reading import OpenedRun, RunStart
from distdbg.export.torch_fr.entries import Entries, unreadable
from distdbg.export.torch_fr.whole_ops import FlightRecorderSides

#: As torch names its files where it is not told otherwise; its analyzer takes the rank from the end.
FILE_PREFIX: Final = "comm_lib_trace_rank_"
#: The version of the layout of torch's dumps.
_VERSION: Final = "2.10"


#: As torch's own dumps; every reader has it.
_PROTOCOL: Final = 2
_HEAD: Final = b"\x80\x02"
_EMPTY_LIST: Final = b"]"
_LIST_HEAD: Final = _HEAD + b"]q\x00"
_DICT_HEAD: Final = _HEAD + b"}q\x00"
_SETITEM: Final = b"s"
_STOP: Final = b"."
_BATCH: Final = 1000


def write(run: OpenedRun, folder: Path) -> None:
    """Write one file for each rank of the last start that has any."""
    starts = [start for start in run.starts if start.ranks]
    if not starts:
        raise RecordError(f"{run.source} holds no ranks", path=run.source)
    start = starts[-1]
    lacks = start.session.lacks
    if len(starts) > 1:
        lacks.append(
            f"a folder of dumps holds one start of a job: that is number {start.number}; "
            "--attempt N takes another"
        )
    sides = _look_at_all(start)
    left_out: Counter[str] = Counter()
    written = set()
    for log in start.read():
        entries = Entries(start.session, sides, log)
        with open(folder / f"{FILE_PREFIX}{log.rank}", "wb", opener=_open_private) as output:
            head = {
                "version": _VERSION,
                "comm_lib_version": "",
                "host": log.host,
                "pid": log.pid,
            }
            write_pickle(output, head, "entries", entries, entries.groups)
        left_out.update(entries.left_out)
        written.add(log.rank)
    lacks += [f"{count:,} left out: {why}" for why, count in left_out.items()]
    if missing := sorted(set(range(start.session.world_size)) - written):
        lacks.append(
            f"there is no dump of rank{'s' * (len(missing) > 1)} {format_ranks(missing)}: "
            "torch's analyzer wants --allow-incomplete-ranks"
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _look_at_all(start: RunStart) -> FlightRecorderSides:
    sides = FlightRecorderSides(is_cut_short=start.window()[1] is not None)
    wanted = set(start.ranks)
    for log in start.read_all():
        # All ops of a rank that is not wanted are known; of the others those that will be written.
        before = log.ops
        if log.rank in wanted:
            start.choose(log)
        sides.add(log, unreadable(log), before)
    return sides


def write_pickle(
    output: BinaryIO,
    head: Mapping[str, Any],
    key: str,
    items: Iterable[Mapping[str, Any]],
    tail: Callable[[], Mapping[str, Any]],
) -> None:
    """Write the pickle of `{**head, key: [*items], **tail()}`; `tail` is asked when `items` are over."""
    output.write(_dump(dict(head)))
    output.write(_dump(key).removeprefix(_HEAD) + _EMPTY_LIST)
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        output.write(_without(_LIST_HEAD, _dump(batch)))
    output.write(_SETITEM + _without(_DICT_HEAD, _dump(dict(tail()))) + _STOP)


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, _PROTOCOL).removesuffix(_STOP)


def _without(head: bytes, data: bytes) -> bytes:
    assert data.startswith(head)
    return data[len(head) :]
