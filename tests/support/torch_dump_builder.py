"""Writes dumps of torch's flight recorder by hand, in few lines, as tests of the diagnosis need them.

job = TorchDumpBuilder(world_size=4)
for rank in range(4):
    job.op(rank, "all_reduce", sizes=[[4]], state="completed")
job.op(0, "all_reduce", sizes=[[4]], state="started")
job.write(tmp_path)                  trace_rank_0 ...
job.dump(0)                          what a file holds, for tests that change it
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_BEGAN_NS: Final = 1_790_000_000_000_000_000
_SECOND: Final = 10**9


class TorchDumpBuilder:
    """The dumps of one job. Group '0' is the default one and has all ranks."""

    def __init__(
        self,
        world_size: int,
        *,
        backend: str = "nccl",
        version: str = "2.10",
        first_record: int = 0,
    ) -> None:
        self.world_size = world_size
        self.backend = backend
        self.version = version
        self.groups: dict[str, tuple[str, tuple[int, ...]]] = {
            "0": ("default_pg", tuple(range(world_size)))
        }
        self.entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(world_size)}
        self._records = dict.fromkeys(range(world_size), first_record)
        self._seqs: dict[tuple[int, str, bool], int] = {}

    def group(self, name: str, ranks: Sequence[int], *, desc: str = "undefined") -> None:
        """Add a group."""
        self.groups[name] = desc, tuple(ranks)

    def op(
        self,
        rank: int,
        name: str,
        *,
        group: str = "0",
        sizes: Sequence[Sequence[int]] = ((4,),),
        outputs: Sequence[Sequence[int]] | None = None,
        dtype: str = "Float",
        state: str = "completed",
        retired: bool | None = None,
        seq: int | None = None,
        at_s: float | None = None,
        site: str = "train.py:10 (step)",
        is_p2p: bool | None = None,
        **further: Any,
    ) -> dict[str, Any]:
        """Add an op; 'send 0->1' is a message. `further` are keys of the entry."""
        message = name.startswith(("send", "recv")) if is_p2p is None else is_p2p
        key = rank, group, message
        number = self._seqs[key] = self._seqs.get(key, 0) + 1 if seq is None else seq
        record = self._records[rank]
        self._records[rank] += 1
        created = _BEGAN_NS + round((record if at_s is None else at_s) * _SECOND)
        is_over = state == "completed"
        file, _, rest = site.partition(":")
        line, _, function = rest.partition(" ")
        entry = {
            "frames": [
                {"name": "wrapper", "filename": "/x/torch/distributed/c10d_logger.py", "line": 83},
                {"name": function.strip("()"), "filename": f"/job/{file}", "line": int(line)},
            ],
            "record_id": record,
            "pg_id": list(self.groups).index(group),
            "process_group": (group, self.groups[group][0]),
            "collective_seq_id": self._seqs.get((rank, group, False), 0) if message else number,
            "p2p_seq_id": number if message else self._seqs.get((rank, group, True), 0),
            "op_id": record + 1,
            "profiling_name": f"{self.backend}:{name}",
            "time_created_ns": created,
            "input_sizes": [list(shape) for shape in sizes],
            "input_dtypes": [dtype] * len(sizes),
            "output_sizes": [list(shape) for shape in (sizes if outputs is None else outputs)],
            "output_dtypes": [dtype] * len(sizes if outputs is None else outputs),
            "state": state,
            "time_discovered_started_ns": created + 1000 if state != "scheduled" else None,
            "time_discovered_completed_ns": created + 10**6 if is_over else None,
            "retired": is_over if retired is None else retired,
            "timeout_ms": 600000,
            "is_p2p": message,
        }
        entry.update(further)
        self.entries[rank].append(entry)
        return entry

    def all(self, name: str, *, group: str = "0", **facts: Any) -> None:
        """The same op on all members of a group."""
        for rank in self.groups[group][1]:
            self.op(rank, name, group=group, **facts)

    def dump(self, rank: int) -> dict[str, Any]:
        """What the file of a rank holds."""
        config = {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for name, (desc, ranks) in self.groups.items()
            if rank in ranks
        }
        return {
            "version": self.version,
            "pg_config": config,
            "comm_lib_version": "2.27.5",
            "pg_status": {},
            "entries": self.entries[rank],
        }

    def write(
        self,
        folder: Path,
        *,
        ranks: Sequence[int] | None = None,
        prefix: str = "trace_rank_",
        as_json: bool = False,
    ) -> list[Path]:
        """A file per rank."""
        paths = []
        for rank in range(self.world_size) if ranks is None else ranks:
            path = folder / f"{prefix}{rank}"
            if as_json:
                path.write_text(json.dumps(to_json(self.dump(rank))))
            else:
                path.write_bytes(pickle.dumps(self.dump(rank), protocol=2))
            paths.append(path)
        return paths


def to_json(dump: dict[str, Any]) -> dict[str, Any]:
    """A dump as torch's JSON has it: no frames, 0 for unknown times."""
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key != "frames"}
        for entry in dump["entries"]
    ]
    return {**dump, "entries": entries, "nccl_comm_state": {}}
