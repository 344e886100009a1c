"""Launchers as they show in the environment; the variables were taken from real launches."""

from __future__ import annotations

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.detect import detect, expand_hosts

OPEN_MPI = {
    "PMIX_NAMESPACE": "prterun-n1-10141@1",
    "PMIX_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
}
HYDRA = {
    "PMI_HOSTNAME": "n1",
    "MPI_LOCALNRANKS": "2",
    "MPI_LOCALRANKID": "1",
    "PMI_RANK": "3",
    "PMI_FD": "9",
    "PMI_SIZE": "4",
}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "n[01-03]",
    "SLURM_JOB_NODELIST": "n[01-04]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
}


def test_open_mpi_is_recognised() -> None:
    place = detect(OPEN_MPI)
    assert place is not None
    assert (place.launcher, place.rank, place.world_size) == ("Open MPI", 2, 4)
    assert (place.local_rank, place.local_world_size, place.is_one_host) == (2, 4, True)
    assert place.job == "PMIX_NAMESPACE=prterun-n1-10141@1"


def test_mpich_names_no_job_and_may_span_hosts() -> None:
    place = detect(HYDRA)
    assert place is not None
    assert (place.launcher, place.rank, place.world_size, place.job) == ("PMI", 3, 4, None)
    assert not place.is_one_host


def test_slurm_describes_the_step_not_the_allocation() -> None:
    place = detect(SLURM)
    assert place is not None
    assert (place.launcher, place.rank, place.world_size) == ("Slurm", 5, 6)
    assert place.hosts == ("n01", "n02", "n03")
    assert (place.local_rank, place.local_world_size, place.is_one_host) == (1, 2, False)


def test_slurm_on_one_host_has_all_ranks_here() -> None:
    place = detect(SLURM | {"SLURM_STEP_NODELIST": "n01"})
    assert place is not None
    assert place.is_one_host


def test_a_slurm_batch_script_is_not_a_rank() -> None:
    batch = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    assert detect(batch) is None


def test_mpiexec_inside_a_slurm_step_wins_over_the_step() -> None:
    place = detect(SLURM | HYDRA)
    assert place is not None
    assert (place.launcher, place.rank) == ("PMI", 3)
    assert place.hosts[0] == "n01"


def test_pals_names_its_job() -> None:
    place = detect({"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "2", "PALS_APID": "a-b"})
    assert place is not None
    assert (place.launcher, place.rank, place.world_size, place.job) == (
        "PALS",
        1,
        2,
        "PALS_APID=a-b",
    )


def test_no_launcher_is_none() -> None:
    assert detect({"PATH": "/bin"}) is None


def test_a_rank_without_a_size_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="PMIx set PMIX_RANK=1 but not how many") as caught:
        detect({"PMIX_RANK": "1"})
    assert "WORLD_SIZE" in str(caught.value)


def test_a_rank_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="PMI_RANK='x'"):
        detect({"PMI_RANK": "x", "PMI_SIZE": "2"})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("n[1-2],login,gpu-[9-11]", ["n1", "n2", "login", "gpu-9", "gpu-10", "gpu-11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[099-101].lab", ["n099.lab", "n100.lab", "n101.lab"]),
        ("", []),
    ],
)
def test_host_lists_are_expanded(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[a-b]", "n[1-]", "n[1-9999999999]", "n[[1]]"])
def test_a_broken_host_list_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="host list"):
        expand_hosts(text)
