"""What a rank is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg import config
from distdbg.launch.environment import RanksStart, find_place, rank_command, rank_environment
from distdbg.launch.options import RunOptions, ScriptForm
from distdbg.launch.rendezvous.round import NodeFacts


def node(name: str, nproc: int, role: str = "default") -> NodeFacts:
    return NodeFacts(name=name, addr=name, host=name, nproc=nproc, role=role)


NODES = (node("a", 2), node("b", 3, "server"), node("c", 1), node("d", 2, "server"))


def start(node_rank: int = 0, nodes: tuple[NodeFacts, ...] = NODES) -> RanksStart:
    return RanksStart(
        nodes=nodes,
        node_rank=node_rank,
        restarts=1,
        run="20260101-000000-abcdef",
        folder=Path("/runs/x/attempt_2"),
        host=nodes[node_rank].host,
        store="tcp://a:4000/attempt_2?serve=0",
        token="secret",
        master_addr="a",
        master_port=5000,
    )


def options(**changes) -> RunOptions:
    return RunOptions(**{"script": "s.py", "rdzv_id": "job", "max_restarts": 3, **changes})


def environment(
    made: RunOptions, begun: RanksStart, local_rank: int, **environ: str
) -> dict[str, str]:
    error_file = Path("/logs/1/error.json")
    return rank_environment(made, begun, local_rank, environ=environ, error_file=error_file)


def test_ranks_are_numbered_host_by_host_and_by_role_among_their_own() -> None:
    places = [
        find_place(NODES, node_rank, local_rank)
        for node_rank, facts in enumerate(NODES)
        for local_rank in range(facts.nproc)
    ]
    assert [place.rank for place in places] == list(range(8))
    assert {place.world_size for place in places} == {8}
    assert [place.local_rank for place in places] == [0, 1, 0, 1, 2, 0, 0, 1]
    assert [place.local_world_size for place in places] == [2, 2, 3, 3, 3, 1, 2, 2]
    assert [place.role_rank for place in places] == [0, 1, 0, 1, 2, 2, 3, 4]
    assert [place.role_world_size for place in places] == [3, 3, 5, 5, 5, 3, 5, 5]


def test_a_rank_finds_what_torchrun_would_tell_it_and_where_our_things_are() -> None:
    found = environment(options(nproc=3, role="server"), start(1), 2, HOME="/home/me")
    assert found == {
        "HOME": "/home/me",
        "RANK": "4",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "4",
        "ROLE_RANK": "2",
        "ROLE_WORLD_SIZE": "5",
        "ROLE_NAME": "server",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "5000",
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCHELASTIC_ERROR_FILE": "/logs/1/error.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "DISTDBG_STORE": "tcp://a:4000/attempt_2?serve=0",
        "DISTDBG_TOKEN": "secret",
        "DISTDBG_RUN": "20260101-000000-abcdef",
        "DISTDBG_RUN_DIR": "/runs/x/attempt_2",
        "DISTDBG_HOST": "b",
        "DISTDBG_AGENT": "0",
        "DISTDBG_TORCH": "1",
        "DISTDBG_ERROR_FILE": "/logs/1/error.json",
    }


def test_what_an_outer_launcher_said_is_replaced() -> None:
    outer = {"RANK": "7", "MASTER_PORT": "1", "DISTDBG_RUN": "x", "DISTDBG_ERROR_FILE": "/outer"}
    found = environment(options(), start(), 0, **outer)
    assert (found["RANK"], found["MASTER_PORT"]) == ("0", "5000")
    assert found["DISTDBG_ERROR_FILE"] == "/logs/1/error.json"


def test_groups_of_torch_are_watched_unless_that_is_not_wanted() -> None:
    assert environment(options(), start(), 0)["DISTDBG_TORCH"] == "1"
    assert environment(options(torch=False), start(), 0, DISTDBG_TORCH="1")["DISTDBG_TORCH"] == "0"


def test_without_an_error_file_the_variable_is_empty_as_torchruns() -> None:
    found = rank_environment(options(), start(), 0, environ={}, error_file=None)
    assert found["TORCHELASTIC_ERROR_FILE"] == found["DISTDBG_ERROR_FILE"] == ""


def test_the_number_of_threads_is_the_users_or_one_when_there_are_several_ranks() -> None:
    assert "OMP_NUM_THREADS" not in environment(options(), start(), 0)
    assert environment(options(nproc=2), start(), 0)["OMP_NUM_THREADS"] == "1"
    found = environment(options(nproc=2), start(), 0, OMP_NUM_THREADS="8")
    assert found["OMP_NUM_THREADS"] == "8"


def test_what_nccl_does_about_errors_is_the_users_choice() -> None:
    found = environment(options(), start(), 0, TORCH_NCCL_ASYNC_ERROR_HANDLING="3")
    assert found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


@pytest.mark.parametrize(("visible", "own"), [(None, "1"), ("4, 6", "6"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_virtual_local_rank_sees_one_gpu_as_number_0(visible: str | None, own: str) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = environment(options(nproc=2, virtual_local_rank=True), start(), 1, **environ)
    assert found["LOCAL_RANK"] == "0"
    assert found["RANK"] == "1"
    assert found["CUDA_VISIBLE_DEVICES"] == own


def test_gpus_are_left_alone_otherwise() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in environment(options(), start(), 0)
    found = environment(options(), start(), 0, CUDA_VISIBLE_DEVICES="4,6")
    assert found["CUDA_VISIBLE_DEVICES"] == "4,6"


@pytest.mark.parametrize(
    ("form", "command"),
    [
        (ScriptForm.PYTHON, "python -u s.py"),
        (ScriptForm.MODULE, "python -u -m s.py"),
        (ScriptForm.PROGRAM, "s.py"),
        (ScriptForm.RUN_PATH, "python -u -m distdbg.launch.run_path s.py"),
    ],
)
def test_a_script_is_run_as_its_form_says(form: ScriptForm, command: str) -> None:
    made = options(form=form, script_args=("--a", "b c"))
    found = rank_command(made, 0, environ={}, executable="python")
    assert found == (*command.split(), "--a", "b c")


def test_another_python_can_be_named() -> None:
    found = rank_command(options(), 0, environ={"PYTHON_EXEC": "pypy"}, executable="python")
    assert found == ("pypy", "-u", "s.py")


def test_the_local_rank_comes_before_the_scripts_own_arguments() -> None:
    made = options(passes_local_rank=True, script_args=("--x",))
    found = rank_command(made, 3, environ={}, executable="python")
    assert found[-2:] == ("--local-rank=3", "--x")


def test_the_local_rank_is_filled_into_the_arguments() -> None:
    made = options(script_args=("--out=log.${local_rank}", "$local_rank", "$$"))
    found = rank_command(made, 3, environ={}, executable="python")
    assert found[-3:] == ("--out=log.3", "$local_rank", "$$")


def test_ranks_are_told_that_they_may_be_debugged_only_where_a_flag_says_so() -> None:
    names = ("DISTDBG_DEBUGGABLE", "DISTDBG_DEBUG_ON_ERROR")
    found = environment(options(), start(), 0)
    assert not set(names) & found.keys()
    found = environment(options(debuggable=True, debug_on_error=True), start(), 0)
    assert [found[name] for name in names] == ["1", "1"]


def test_a_timeout_of_the_command_line_is_the_default_of_the_ranks_ops() -> None:
    given = {"DISTDBG_TIMEOUT_S": "7"}
    assert environment(options(), start(), 0, **given)["DISTDBG_TIMEOUT_S"] == "7"
    found = environment(options(op_timeout_s=2.5), start(), 0, **given)
    assert config.read_float("DISTDBG_TIMEOUT_S", found) == 2.5


def test_a_crash_leaves_its_stack_unless_the_user_has_chosen() -> None:
    assert environment(options(), start(), 0)["PYTHONFAULTHANDLER"] == "1"
    assert environment(options(), start(), 0, PYTHONFAULTHANDLER="")["PYTHONFAULTHANDLER"] == ""
