"""Whatever the bytes of a run are, each format is written, and what is in it can be read."""

from __future__ import annotations

import csv
import io
import json
import pickle
import random
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from distdbg.errors import RecordError
from distdbg.export.formats import FORMATS
from distdbg.export.reading import open_run
from distdbg.record.folders import record_name
from distdbg.record.format import HEADER_NBYTES, OP, Section
from distdbg.record.format import OP_NBYTES as ROW
from tests.support.torch_dump_builder import TorchDumpBuilder
from tests.unit.export.made_run import every_kind

NAMES = ("csv", "parquet", "torch-fr", "otlp")
MODULES = {kind.name: kind.module for kind in FORMATS}


def write(name: str, paths: list[Path], folder: Path) -> Any:
    """What a reader of the format gets."""
    module = import_module(MODULES[name])
    run = open_run(paths)
    if name == "torch-fr":
        folder.mkdir()
        module.write(run, folder)
        return [pickle.loads(path.read_bytes())["entries"] for path in sorted(folder.iterdir())]
    output = io.BytesIO()
    module.write(run, output)
    data = output.getvalue()
    if name == "csv":
        return list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))[1:]
    if name == "otlp":
        return [json.loads(line) for line in data.splitlines()]
    return pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(data)).to_batches()


def save_damaged(folder: Path, seed: int) -> list[Path]:
    """Some bytes of each record are others; most of them in the ring."""
    chance = random.Random(seed)
    run = every_kind()
    run.save(folder)
    for rank, build in enumerate(run.builds):
        path = folder / record_name(rank)
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 60)):
            data[chance.randrange(HEADER_NBYTES, len(data))] ^= 1 << chance.randrange(8)
        ring = build.offset_of(Section.RING, 0)
        for _ in range(chance.randrange(20)):  # words that are set later have a check of their own
            field = OP[chance.choice(("started", "ended", "outcome", "error"))].offset
            data[ring + chance.randrange(40) * ROW + field + chance.randrange(8)] ^= 0x10
        path.write_bytes(bytes(data[: len(data) - chance.choice((0, 0, 0, 500))]))
    return [folder]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_have_changed_stop_no_format(name: str, tmp_path: Path) -> None:
    for seed in range(5):
        paths = save_damaged(tmp_path / f"run{seed}", seed)
        with suppress(RecordError):  # not one header could be read
            write(name, paths, tmp_path / f"out{seed}")


@pytest.mark.parametrize("name", ["csv", "parquet", "torch-fr", "otlp"])
def test_dumps_of_torch_can_be_written_as_well(name: str, tmp_path: Path) -> None:
    job = TorchDumpBuilder(world_size=2)
    job.all("all_reduce")
    job.op(0, "send 0->1")
    job.op(1, "recv 1<-0")
    job.op(0, "all_gather", outputs=[[8]], state="scheduled")
    (tmp_path / "dumps").mkdir()
    job.write(tmp_path / "dumps")
    found = write(name, [tmp_path / "dumps"], tmp_path / "out")
    if name == "csv":
        assert sum(row[4] == "op" for row in found) == 5
    elif name == "torch-fr":
        assert [len(entries) for entries in found] == [3, 2]
    else:
        assert found
