"""Who am I and where do we meet, decided from plain values."""

from __future__ import annotations

import pytest

from distdbg.errors import ConfigError, UsageError
from distdbg.runtime.rendezvous.resolve import (
    AtAddress,
    AtFile,
    AtPublishedAddress,
    JoinPlan,
    derive_port,
    plan_meeting,
)

PLAIN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n01", "MASTER_PORT": "29500"}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "41061",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/none_b/attempt_0/1/error.json",
}
MPICH = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NODELIST": "n[01-02]",
}


def plan(
    environ: dict[str, str], url: str = "env://", rank: int = -1, world_size: int = -1
) -> JoinPlan:
    return plan_meeting(url, rank, world_size, environ, "4711.99")


def test_the_four_variables_are_enough() -> None:
    meeting = plan(PLAIN)
    assert (meeting.rank, meeting.world_size) == (1, 4)
    assert meeting.where == AtAddress("n01", 29500)


def test_arguments_win_over_variables() -> None:
    meeting = plan(PLAIN, rank=0, world_size=2)
    assert (meeting.rank, meeting.world_size) == (0, 2)


def test_all_missing_variables_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        plan({"MASTER_ADDR": "n01"})
    assert "not set: RANK, WORLD_SIZE, MASTER_PORT" in caught.value.what
    assert "set: MASTER_ADDR=n01" in str(caught.value)
    assert caught.value.hint


def test_rank_as_argument_still_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="not set: MASTER_ADDR, MASTER_PORT\n"):
        plan({}, rank=0, world_size=2)


@pytest.mark.parametrize(
    ("name", "text"), [("RANK", "one"), ("WORLD_SIZE", "-4"), ("MASTER_PORT", "70000")]
)
def test_a_wrong_value_is_shown(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{text}'"):
        plan(PLAIN | {name: text})


def test_a_rank_beyond_the_world_is_refused() -> None:
    with pytest.raises(UsageError, match="rank 4 does not exist in a world of 4: ranks are 0 to 3"):
        plan(PLAIN | {"RANK": "4"})


def test_distdbg_store_says_where_if_no_address_is_set() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "1", "DISTDBG_STORE": "local:///tmp/x/store"}
    assert plan(environ).where == AtPublishedAddress("/tmp/x/store", "/tmp/x/store")
    assert plan(environ | PLAIN).where == AtAddress("n01", 29500)


def test_torchruns_own_store_port_is_not_used_on_one_host() -> None:
    where = plan(TORCHRUN).where
    assert isinstance(where, AtPublishedAddress)
    assert "41061" in where.key


def test_ranks_of_a_torchrun_that_a_rank_has_started_do_not_meet_at_the_launchers_store() -> None:
    environ = TORCHRUN | {"DISTDBG_STORE": "launcher://127.0.0.1:4000/a/ranks"}
    assert plan(environ).where == plan(TORCHRUN).where
    without = environ | {"TORCHELASTIC_USE_AGENT_STORE": "False"}
    assert plan(without).where == AtAddress("127.0.0.1", 4000, by_launcher=True, prefix="a/ranks")


def test_all_ranks_of_a_torchrun_share_a_spot_and_the_next_run_has_another() -> None:
    other_rank = TORCHRUN | {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/none_b/attempt_0/0/error.json",
    }
    next_run = TORCHRUN | {"TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_c/none_d/attempt_0/1/e"}
    restarted = TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}
    assert plan(TORCHRUN).where == plan(other_rank).where
    assert plan(TORCHRUN).where != plan(next_run).where
    assert plan(TORCHRUN).where != plan(restarted).where


def test_torchrun_on_several_hosts_derives_a_port_all_ranks_agree_on() -> None:
    first = TORCHRUN | {"WORLD_SIZE": "4", "MASTER_ADDR": "n01"}
    second = first | {"RANK": "3", "TORCHELASTIC_ERROR_FILE": "/tmp/elsewhere/x/attempt_0/1/e"}
    where = plan(first).where
    assert isinstance(where, AtAddress)
    assert (where.host, where.port != 41061) == ("n01", True)
    assert plan(second).where == where


def test_torchrun_without_a_store_of_its_own_leaves_the_port_to_rank_0() -> None:
    where = plan(TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "False"}).where
    assert where == AtAddress("localhost", 41061)


def test_mpich_on_one_host_meets_by_its_launcher_process() -> None:
    meeting = plan(MPICH)
    assert (meeting.rank, meeting.world_size) == (0, 2)
    assert meeting.where == AtPublishedAddress("PMI 4711.99")


def test_mpich_on_several_hosts_needs_the_first_host_and_a_port() -> None:
    several = MPICH | {"PMI_SIZE": "4"}
    with pytest.raises(ConfigError, match="several hosts") as caught:
        plan(several)
    assert caught.value.hint
    assert "MASTER_ADDR" in caught.value.hint
    with pytest.raises(ConfigError, match="names no job"):
        plan(several | {"MASTER_ADDR": "n01"})
    both = several | {"MASTER_ADDR": "n01", "MASTER_PORT": "29500"}
    assert plan(both).where == AtAddress("n01", 29500)


def test_slurm_on_several_hosts_meets_on_the_first_at_a_port_from_the_job() -> None:
    where = plan(SLURM).where
    assert isinstance(where, AtAddress)
    assert where.host == "n01"
    assert 20_000 <= where.port < 32_000
    assert where != plan(SLURM | {"SLURM_JOB_ID": "78"}).where
    assert where.port == derive_port("SLURM_JOB_ID=77/SLURM_STEP_ID=0")


def test_a_tcp_url_may_carry_rank_and_size() -> None:
    meeting = plan({}, "tcp://n01:29500?rank=1&world_size=2")
    assert (meeting.rank, meeting.world_size) == (1, 2)
    assert meeting.where == AtAddress("n01", 29500)
    assert str(meeting.where) == "tcp://n01:29500"


def test_a_url_says_where_and_the_launcher_who() -> None:
    meeting = plan(MPICH, "tcp://n01:29500")
    assert (meeting.rank, meeting.world_size, meeting.where) == (0, 2, AtAddress("n01", 29500))


def test_an_ipv6_address_is_understood() -> None:
    where = plan({}, "tcp://[::1]:29500", 0, 1).where
    assert where == AtAddress("::1", 29500)
    assert str(where) == "tcp://[::1]:29500"


@pytest.mark.parametrize(
    ("url", "path"),
    [("file:///tmp/a%20b", "/tmp/a b"), ("file://folder/name", "folder/name")],
)
def test_a_file_url_names_a_path(url: str, path: str) -> None:
    assert plan({}, url, 0, 1).where == AtFile(path)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("tcp://n01", "does not name a host and a port"),
        ("tcp://n01:x", "does not name a host and a port"),
        ("file://", "does not name a file"),
        ("file:///tmp/", "does not name a file"),
        ("gopher://n01", "unknown scheme 'gopher'"),
        ("tcp://n01:1?rank=x", "rank='x' in"),
    ],
)
def test_a_url_that_says_nothing_is_refused(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan({}, url, -1 if "rank" in url else 0, 1)


def test_a_url_without_rank_and_size_asks_for_both() -> None:
    with pytest.raises(UsageError, match="needs rank and world_size"):
        plan({}, "tcp://n01:29500")


def test_the_store_of_a_launcher_is_preferred_to_the_address_for_other_libraries() -> None:
    environ = PLAIN | {"DISTDBG_STORE": "launcher://n01:41000"}
    assert plan(environ).where == AtAddress("n01", 41000, by_launcher=True)
    assert str(plan(environ).where) == "launcher://n01:41000"
    environ["DISTDBG_STORE"] += "/job/3"
    assert plan(environ).where == AtAddress("n01", 41000, by_launcher=True, prefix="job/3")
    assert str(plan(environ).where) == "launcher://n01:41000/job/3"
