"""torch's own analyzer, run on what `distdbg export --to torch-fr` has written, says what is so."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.verdict import diagnose
from distdbg.export.reading import RunSelection
from distdbg.export.torch_fr.dumps import write
from distdbg.record.format import Status
from tests.unit.export.made_run import MadeRun, every_kind

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: Runs the analyzer's own main, and prints what its database says.
ANALYZE = """
import json, pickle, sys
from torch.distributed.flight_recorder.fr_trace import main
main([sys.argv[1], "-o", sys.argv[2], *sys.argv[3:]])
with open(sys.argv[2], "rb") as file:
    _, database = pickle.load(file)
print("DATABASE " + json.dumps([
    {
        "group": one.group_id, "name": one.collective_name.partition(":")[2],
        "seq": one.collective_seq_id, "is_good": one.pass_check and not one.missing_ranks,
        "missing": sorted(one.missing_ranks or ()),
        "culprits": {
            rank: str(other.type_of_mismatch)
            for rank, other in (one.mismatch_collectives or {}).items()
        },
    }
    for one in database.collectives
]))
"""


def export(run: MadeRun, folder: Path, chosen: RunSelection | None = None) -> Path:
    opened = run.open(folder / "run", chosen)
    dumps = folder / "dumps"
    dumps.mkdir()
    write(opened, dumps)
    return dumps


Analyze = Callable[..., tuple[list[dict[str, Any]], str]]


@pytest.fixture
def analyze(warm_python: WarmPython) -> Analyze:
    def run(dumps: Path, *flags: str) -> tuple[list[dict[str, Any]], str]:
        """What torch's analyzer found, and what it printed."""
        database = dumps.parent / "database"
        done = warm_python.run(["-c", ANALYZE, str(dumps), str(database), *flags])
        assert done.returncode == 0, done.stderr
        words = done.stdout + done.stderr
        (line,) = [line for line in words.splitlines() if line.startswith("DATABASE ")]
        return json.loads(line.removeprefix("DATABASE ")), words.replace(line, "")

    return run


def test_a_run_that_went_well_matches_in_all_of_its_ops(tmp_path: Path, analyze: Analyze) -> None:
    found, words = analyze(export(every_kind(), tmp_path))
    assert [one for one in found if not one["is_good"]] == []
    assert "errors" not in words
    assert "missing" not in words
    by_group: dict[str, list[str]] = {}
    for one in found:
        by_group.setdefault(one["group"], []).append(one["name"].partition(" ")[0])
    assert by_group["1:world"] == [
        "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_gather_v",
        "reduce_scatter_v", "all_to_all", "gather", "scatter", "barrier", "all_reduce",
    ]  # fmt: skip
    assert by_group["2:pair"] == ["all_reduce"]
    messages = [kinds for group, kinds in by_group.items() if "->" in group]
    assert sum(map(len, messages)) == 4 + 1 + 1 + 2


def test_the_command_of_torch_takes_the_folder(tmp_path: Path, warm_python: WarmPython) -> None:
    dumps = export(every_kind(), tmp_path)
    module = "torch.distributed.flight_recorder.fr_trace"
    done = warm_python.run(["-m", module, str(dumps)])
    assert done.returncode == 0, done.stderr
    assert "errors" not in done.stderr


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"inputs": [(5,)], "outputs": [(5,)]}, "SIZE_OR_SYNTAX_MISMATCH"),
        ({"dtype": "int32"}, "COLLECTIVE_DTYPE_MISMATCH"),
        ({"kind": "broadcast"}, "COLLECTIVE_TYPE_MISMATCH"),
    ],
)
def test_a_mismatch_is_told_with_its_ranks(
    tmp_path: Path, analyze: Analyze, other: dict[str, Any], error: str
) -> None:
    run = MadeRun(3)
    run.all("all_reduce", op="SUM")
    for rank in range(3):
        facts: dict[str, Any] = {"kind": "all_reduce", **(other if rank == 2 else {})}
        run.op(rank, has_ended=False, status=Status.MISMATCH, fingerprint=1 + (rank == 2), **facts)
    dumps = export(run, tmp_path)
    found, _ = analyze(dumps)
    assert [one["is_good"] for one in found] == [True, False]
    # Whom it blames hangs on the order of the files; that it is not all of them does not.
    assert set(found[1]["culprits"]) in ({"2"}, {"0", "1"})
    assert all(error in words for words in found[1]["culprits"].values())
    (session,) = open_paths([dumps])
    root = diagnose(session).root
    assert root is not None
    assert (root.kind, root.ranks, root.seq) == (FindingKind.MISMATCH, (2,), 2)


def test_a_rank_that_never_called_is_the_one_that_is_missing(
    tmp_path: Path, analyze: Analyze
) -> None:
    run = MadeRun(4)
    run.all("all_reduce", op="SUM")
    for rank in (0, 1, 3):
        run.op(rank, "all_gather", outputs=[(16,)], has_ended=False)
    dumps = export(run, tmp_path)
    found, words = analyze(dumps)
    assert found[1] | {"culprits": {}} == {
        "group": "1:world", "name": "all_gather", "seq": 2, "is_good": False, "missing": [2],
        "culprits": {},
    }  # fmt: skip
    assert "Not all ranks joining collective, sequence number: 2" in words
    assert "step at /job/train.py:88" in words
    (session,) = open_paths([dumps])
    root = diagnose(session).root
    assert root is not None
    assert (root.kind, root.ranks, root.seq) == (FindingKind.MISSING_RANK, (2,), 2)


def test_a_message_that_nobody_takes_is_missing_at_its_receiver(
    tmp_path: Path, analyze: Analyze
) -> None:
    run = MadeRun(4)
    run.all("barrier")
    run.send(1, 2)
    run.message("send", 1, 2, has_ended=False)
    found, _ = analyze(export(run, tmp_path))
    assert [one for one in found if not one["is_good"]] == [
        {
            "group": "1:world[1->2]", "name": "send 0->1", "seq": 2, "is_good": False,
            "missing": [2], "culprits": {},
        }
    ]  # fmt: skip


def test_a_message_of_another_size_is_a_mismatch(tmp_path: Path, analyze: Analyze) -> None:
    run = MadeRun(3)
    run.message("send", 0, 2, count=4)
    run.message("recv", 2, 0, count=3)
    found, _ = analyze(export(run, tmp_path))
    assert [one["is_good"] for one in found] == [False]
    assert "SIZE_OR_SYNTAX_MISMATCH" in str(found[0]["culprits"])


def test_rings_that_came_round_at_different_places_make_nobody_missing(
    tmp_path: Path, analyze: Analyze
) -> None:
    run = MadeRun(3, ring_count=16)
    run.group("pair", (0, 1))
    for step in range(20):
        run.all("all_reduce", op="SUM")
        if step % 2:
            run.all("broadcast", root=0, group="pair")
        if step % 5 == 0:
            run.send(1, 2)
    found, words = analyze(export(run, tmp_path))
    assert found
    assert [one for one in found if not one["is_good"]] == []
    assert "missing" not in words


def test_a_rank_without_a_record_is_passed_over_when_torch_is_told_so(
    tmp_path: Path, analyze: Analyze
) -> None:
    run = MadeRun(3)
    run.all("all_reduce", op="SUM")
    run.save(tmp_path / "run", ranks=(0, 1))
    from distdbg.export.reading import open_run

    opened = open_run([tmp_path / "run"])
    (tmp_path / "dumps").mkdir()
    write(opened, tmp_path / "dumps")
    assert any("--allow-incomplete-ranks" in lack for lack in opened.lacks())
    _, words = analyze(tmp_path / "dumps", "--allow-incomplete-ranks")
    assert "missed FR dumps from ranks ({2})" in words


def test_a_run_that_was_cut_to_a_time_makes_nobody_missing(
    tmp_path: Path, analyze: Analyze
) -> None:
    run = MadeRun(3)
    for _ in range(10):
        run.all("all_reduce", op="SUM")
        run.send(0, 1)
    whole = run.open(tmp_path / "whole")
    ops = next(iter(whole.starts[0].read())).ops.issued_ns
    (start,) = whole.starts
    middle = start.offset_ns(0) + ops[len(ops) // 2]
    dumps = export(run, tmp_path, RunSelection(since_ns=middle - 40_000, until_ns=middle + 65_000))
    found, _ = analyze(dumps)
    assert found
    assert [one for one in found if not one["is_good"]] == []


def test_a_dump_is_of_plain_values(tmp_path: Path) -> None:
    dumps = export(every_kind(), tmp_path)
    dump = pickle.loads((dumps / "comm_lib_trace_rank_1").read_bytes())
    assert dump["version"] == "2.10"
    assert dump["pg_config"]["1:world"]["ranks"] == "[0, 1, 2, 3]"
