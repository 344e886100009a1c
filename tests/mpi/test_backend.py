"""Groups over MPI, under the launchers and libraries of both wheels: what works, and what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.launchers import LIBRARIES, environment_of, run_script

pytest.importorskip("mpi4py")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

PROGRAMS = Path(__file__).with_name("programs")

#: Stays until the two that go on have written what they were told: a launcher that sees one of its
#: processes end by a signal ends the others at once.
SHELL = """
"$@"
code=$?
n=0
while [ $n -lt 400 ] && ! { [ -e "$FOLDER/0.json" ] && [ -e "$FOLDER/2.json" ]; }; do
  n=$((n + 1)); sleep 0.05
done
exit $code
"""


def read_all(folder: Path, ranks: list[int]) -> list[Any]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_that_groups_do_works_over_mpi(tmp_path: Path, library: str) -> None:
    done = run_script(library, PROGRAMS / "healthy.py", 3, arguments=[str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    for rank, found in enumerate(read_all(tmp_path, [0, 1, 2])):
        assert (found["rank"], found["size"], found["backend"]) == (rank, 3, "mpi")
        assert found["failures"] == {}
        assert found["compared"] == [235, 40]
        assert found["goes on"] == ([1.0, 1.0] if rank < 2 else [1.0 + rank] * 2)
        assert found["split"] == ["mpi", 2.0 if rank < 2 else 1.0]
        assert found["overflow"] == [600 % 256]
        _, through_host, direct = found["on gpus"]
        assert through_host == direct == [[6, 6], [6] * 6, [1, 4], [6, 6], [7], [8], [9]]
        send, recv, last = found["to itself"]
        assert "send to oneself on group 'world' can never complete" in send[1]
        assert "recv from oneself on group 'world' can never complete" in recv[1]
        assert last == [9.0, 9.0]
        assert len(found["mismatches"]) == 14
        assert {name for name, _ in found["mismatches"].values()} == {"MismatchError"}
        assert "float64[4] on ranks 0,2, float64[3] on rank 1" in found["mismatches"]["shape"][1]
        assert "broadcast float64[4] on rank 1" in found["mismatches"]["kind"][1]
        assert found["tag"][0] == "UsageError"
        assert "the largest of this MPI" in found["tag"][1]
        if rank < 2:
            assert found["message"][0] == "MismatchError"
            assert "rank 0 sent 4 float64, rank 1 expects 3 float64" in found["message"][1]
        if rank != 1:
            assert found["late"][0] == "OpTimeout"
            assert "for rank 1 of 0-2" in found["late"][1]


@pytest.mark.parametrize("hosts", ["MPIR_CVAR_NOLOCAL", "MPIR_CVAR_ODD_EVEN_CLIQUES"])
def test_no_message_from_any_rank_is_lost_between_hosts_of_mpich(
    tmp_path: Path, hosts: str
) -> None:
    # MPICH takes each rank, or every other one, for one of another host, and goes over UCX.
    variables = {hosts: "1"}
    program = PROGRAMS / "any_source.py"
    done = run_script("mpich", program, 3, arguments=[str(tmp_path)], **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_all(tmp_path, [0])[0]
    assert found["collected"] == [[], list(range(100)), list(range(100))]
    assert found["large"] == [7.0, 7.0]
    assert found["in order"] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_goes_wrong_is_told_and_the_ranks_leave(tmp_path: Path, library: str) -> None:
    shell = tmp_path / "stay.sh"
    shell.write_text(SHELL)
    program = [sys.executable, str(PROGRAMS / "faulty.py"), str(tmp_path)]
    run_script(
        library,
        shell,
        3,
        arguments=program,
        interpreter="sh",
        FOLDER=str(tmp_path),
        DISTDBG_DEBUG="info",
    )  # returns at all: nobody hangs in MPI_Finalize
    for found in read_all(tmp_path, [0, 2]):
        first, second = found["differ"]
        assert first[0] == "MismatchError"
        assert "float64[4] on ranks 0,2, float64[3] on rank 1" in first[1]
        assert second[0] == "CollectiveError"
        assert found["goes on"] == [2.0, 2]
        name, what, waited_s = found["lost"]
        assert name == "PeerLost"
        assert "rank 1 died (signal 9, SIGKILL)" in what
        assert waited_s < 10
    on_time, late = read_all(tmp_path, [0, 2])
    assert on_time["late"][0] == "OpTimeout"
    assert "for rank 2 of 0-2" in on_time["late"][1]
    assert late["late"][0] == "CollectiveError"


def test_a_program_that_started_mpi_itself_for_one_thread(tmp_path: Path) -> None:
    done = run_script(
        "mpich",
        PROGRAMS / "bound.py",
        3,
        arguments=[str(tmp_path)],
        MPI4PY_RC_THREAD_LEVEL="serialized",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank, found in enumerate(read_all(tmp_path, [0, 1, 2])):
        if rank < 2:
            assert "MPI is started by all ranks together, and these are 2 of 3" in found["too few"]
        assert found["beside"] == ["gloo", "mpi", 3.0]
        assert found["is threaded"] is False
        assert found["failures"] == {}
        assert found["differs"].startswith("MismatchError: all_reduce #")
        over = "DistBackendError: backend 'mpi': MPI of this process was finalized before"
        assert [reported.startswith(over) for reported in found["after its end"]] == [True, True]


def start_alone(arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    text = (
        "import sys, distdbg as dist\n"
        "print(dist.is_mpi_available(), 'mpi4py.MPI' in sys.modules)\n"
        f"dist.init_process_group('mpi', {arguments})\n"
        "print(dist.get_world_size())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", text],
        env=environment_of("mpich") | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_mpiexec_there_is_one_rank_and_that_has_to_be_meant(tmp_path: Path) -> None:
    alone = start_alone("")
    assert alone.stdout.split() == ["True", "False"]
    assert "this process was not started by mpiexec" in alone.stderr
    meant = start_alone(f"'file://{tmp_path}/store', rank=0, world_size=1")
    assert meant.stdout.split() == ["True", "False", "1"], meant.stderr
    other = start_alone("", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
    assert "Open MPI started 2 ranks, and MPI sees one alone" in other.stderr


def test_a_library_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = start_alone("", MPI4PY_LIBMPI=os.fspath(tmp_path / "libmpi.so"))
    assert missing.stdout.split() == ["False", "False"]
    assert "backend 'mpi' is not available here" in missing.stderr
    assert str(tmp_path / "libmpi.so") in missing.stderr


def test_a_library_that_is_not_the_named_one_is_told_before_it_is_loaded() -> None:
    other = start_alone("", MPI4PY_MPIABI="openmpi")  # beside the library of mpich
    assert other.stdout.split() == ["False", "False"]
    assert "MPI4PY_MPIABI is openmpi, and " in other.stderr
    assert "libmpi.so.12 is mpich's" in other.stderr
    assert "hint: load the library that mpiexec belongs to" in other.stderr
