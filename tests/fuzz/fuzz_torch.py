"""Dumps of torch's flight recorder, a little wrong: read, judged, printed and drawn; or a RecordError."""

from __future__ import annotations

import io
import json
import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from distdbg.diagnose.load.torch_dumps import read_torch_dumps
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import RecordError
from distdbg.render.html import to_html
from distdbg.render.text import print_verdict
from distdbg.render.verdict_json import to_plain
from tests.fuzz import harness
from tests.support.torch_dump_builder import TorchDumpBuilder, to_json


def build(chance: random.Random) -> list[dict[str, Any]]:
    """The dumps of a small job that hangs."""
    job = TorchDumpBuilder(3, backend=chance.choice(("nccl", "gloo")))
    job.group("1", (0, 2), desc="tp")
    for _ in range(chance.randint(0, 3)):
        job.all(chance.choice(("all_reduce", "broadcast", "all_gather")), sizes=[[4]])
        job.all("all_reduce", group="1", sizes=[[2]])
    state = chance.choice(("scheduled", "started"))
    for rank in chance.choice(((0,), (0, 1), (0, 1, 2))):
        job.op(rank, chance.choice(("all_reduce", "broadcast")), sizes=[[4]], state=state)
    if chance.random() < 0.5:
        job.op(0, "send 0->2", sizes=[[4]], state=state)
    return [job.dump(rank) for rank in range(3)]


def one(chance: random.Random) -> None:
    dumps = [harness.mutate(dump, chance) for dump in build(chance)]
    as_json = chance.random() < 0.5
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for rank, dump in enumerate(dumps):
            path = Path(folder) / f"trace_rank_{rank}"
            path.write_bytes(_write(dump, chance, as_json=as_json))
            paths.append(path)
        try:
            session = read_torch_dumps(paths)
        except RecordError:
            return
        verdict = diagnose(session)
        page = to_html(session, verdict)
        assert "<script>alert" not in page
        json.dumps(to_plain(session, verdict), allow_nan=False)
        print_verdict(Console(file=io.StringIO(), width=100), session, verdict, verbose=True)


def _write(dump: Any, chance: random.Random, *, as_json: bool) -> bytes:
    if as_json:
        try:
            data = harness.to_bytes(to_json(dump))
        except (AttributeError, KeyError, TypeError):  # too wrong to be made JSON of
            data = harness.to_bytes(dump)
    else:
        data = pickle.dumps(dump, protocol=2)
    return harness.spoil(data, chance) if chance.random() < 0.1 else data


if __name__ == "__main__":
    harness.main(one, "fuzz_torch", __doc__)
