"""What flags come to, and which of them do not fit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from distdbg.errors import ConfigError, DistError, UsageError
from distdbg.launch.flags import parse
from distdbg.launch.numa import NumaBinding
from distdbg.launch.options import LaunchHost, RunOptions, ScriptForm, read_options
from distdbg.launch.output_streams import StdStreams

MACHINE = LaunchHost(cpus=6, gpus=0)


def read(
    *argv: str, machine: LaunchHost = MACHINE, old: bool = False, **environ: str
) -> RunOptions:
    return read_options(parse([*argv, "s.py", "a"], environ, is_old_form=old), environ, machine)


def test_without_flags_one_rank_runs_alone_on_this_host() -> None:
    options = read()
    assert (options.min_nodes, options.max_nodes, options.nproc) == (1, 1, 1)
    assert (options.script, options.script_args) == ("s.py", ("a",))
    assert options.form is ScriptForm.PYTHON
    assert options.standalone
    assert (options.rdzv_backend, options.rdzv_host, options.rdzv_port) == ("c10d", "localhost", 0)
    assert (options.master_addr, options.master_port) == (None, None)
    assert options.shutdown_timeout_s == 30
    assert options.agent
    assert options.notes == ()


def test_the_default_of_each_option_is_what_no_flags_come_to() -> None:
    options = read()
    plain = RunOptions(script="s.py", script_args=("a",), rdzv_id=options.rdzv_id)
    assert options == plain


def test_every_start_alone_has_a_name_of_its_own() -> None:
    assert read().rdzv_id != read().rdzv_id
    assert read("--standalone", "--rdzv-id=job").rdzv_id != "job"


def test_standalone_ignores_the_other_flags_of_the_rendezvous() -> None:
    options = read("--standalone", "--rdzv-backend=etcd", "--rdzv-endpoint=n01:1", "--nnodes=1:4")
    assert options.standalone
    assert (options.rdzv_backend, options.rdzv_endpoint) == ("c10d", "localhost:0")
    assert (options.min_nodes, options.max_nodes) == (1, 1)


def test_static_with_several_hosts_meets_at_the_masters_port() -> None:
    options = read("--nnodes=2", "--node-rank=1", "--master-addr=n01")
    assert not options.standalone
    assert (options.rdzv_backend, options.rdzv_endpoint) == ("static", "n01:29500")
    assert (options.rdzv_host, options.rdzv_port) == ("n01", 29500)
    assert (options.master_addr, options.master_port) == ("n01", 29500)
    assert options.node_rank == 1
    assert options.rdzv_id == "none"
    assert read("--nnodes=2", "--master-addr=[::1]").rdzv_endpoint == "[::1]:29500"


def test_an_endpoint_wins_over_the_masters_address_and_port() -> None:
    options = read("--nnodes=2", "--rdzv-endpoint=n02:7", "--master-addr=n01", "--master-port=8")
    assert (options.rdzv_host, options.rdzv_port, options.master_addr) == ("n02", 7, "n02")


def test_on_one_host_a_port_that_is_named_is_for_the_ranks() -> None:
    options = read("--master-port=29501", "--rdzv-id=job")
    assert options.standalone
    assert (options.rdzv_port, options.rdzv_id) == (0, "job")
    assert (options.master_addr, options.master_port) == ("127.0.0.1", 29501)
    assert read("--rdzv-endpoint=localhost:0").master_port is None


def test_c10d_has_a_port_of_its_own_where_none_is_named() -> None:
    options = read("--rdzv-backend=c10d", "--nnodes=1:4", "--rdzv-endpoint=n01")
    assert (options.min_nodes, options.max_nodes) == (1, 4)
    assert (options.rdzv_host, options.rdzv_port) == ("n01", 29400)
    assert options.rdzv_endpoint == "n01"
    assert not options.standalone
    assert read("--rdzv-backend=c10d", "--rdzv-endpoint=n01:0").rdzv_port == 0


def test_c10d_says_which_flags_it_ignores() -> None:
    flags = ["--rdzv-backend=c10d", "--node-rank=3", "--master-port=1"]
    options = read(*flags)
    assert options.node_rank == 0
    assert [note.split(" ", 1)[0] for note in options.notes] == ["--node-rank=3", "--master-addr"]
    assert (options.master_addr, options.master_port) == (None, None)


def test_one_host_alone_has_no_use_for_its_number() -> None:
    options = read("--node-rank=1")
    assert options.standalone
    assert options.node_rank == 0
    assert options.notes[0].startswith("--node-rank=1 is ignored")


def test_another_backend_gets_its_endpoint_as_it_was_given() -> None:
    options = read("--rdzv-backend=mine", "--rdzv-endpoint=a:1,b:2", "--nnodes=2")
    assert (options.rdzv_backend, options.rdzv_endpoint) == ("mine", "a:1,b:2")


def test_settings_of_the_rendezvous_are_pairs() -> None:
    conf = read("--rdzv-conf= timeout=9 , url = a=b,").rdzv_conf
    assert conf == {"timeout": "9", "url": "a=b"}
    assert read().rdzv_conf == {}


def test_streams_are_by_local_rank() -> None:
    options = read("--nproc-per-node=3", "-r3", "--tee=0:1,2:2,9:3", OMP_NUM_THREADS="4")
    assert options.redirects == (StdStreams.ALL,) * 3
    assert options.tee == (StdStreams.OUT, StdStreams.NONE, StdStreams.ERR)
    assert options.notes == ()


def test_many_ranks_get_one_thread_each_and_that_is_said() -> None:
    [note] = read("--nproc-per-node=2").notes
    assert note.startswith("note: OMP_NUM_THREADS is 1 in each rank; 3 cores for each")
    assert read("--nproc-per-node=4").notes == ()  # nothing is left idle by it


def test_the_filter_of_local_ranks_is_a_set() -> None:
    assert read("--local-ranks-filter=0, 2").local_ranks_filter == {0, 2}
    assert read().local_ranks_filter is None


def test_signals_are_known_ones_and_each_once() -> None:
    options = read("--signals-to-handle=SIGTERM,sigusr1, SIGTERM")
    assert options.signals_to_handle == (signal.SIGTERM, signal.SIGUSR1)


def test_the_time_between_sigterm_and_sigkill_has_a_variable_of_torchs() -> None:
    theirs = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}
    assert read(**theirs).shutdown_timeout_s == 7
    assert read("--shutdown-timeout=0", **theirs).shutdown_timeout_s == 0
    with pytest.raises(ConfigError, match="TORCH_ELASTIC_SHUTDOWN_TIMEOUT='-1' is not valid"):
        read(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="-1")


def test_an_empty_run_dir_is_no_folder() -> None:
    with pytest.raises(UsageError, match="--run-dir is empty"):
        read("--run-dir=")


def test_folders_prefix_and_binding_are_passed_on() -> None:
    options = read(
        "--log-dir=logs",
        "--run-dir=runs/1",
        "--numa-binding=core-complex",
        "--logs-specs=default",
        TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="[${rank}]: ",
    )
    assert (options.log_dir, options.run_dir) == (Path("logs"), Path("runs/1"))
    assert options.numa_binding is NumaBinding.CORE_COMPLEX
    assert options.log_line_prefix_template == "[${rank}]: "


def test_the_agent_can_be_left_out_and_can_listen() -> None:
    assert not read("--no-agent").agent
    assert not read(DISTDBG_AGENT="0").agent
    assert read("--agent-listen=[::1]:80").agent_listen == ("::1", 80)


@pytest.mark.parametrize(
    ("argv", "form"),
    [
        (["-m"], ScriptForm.MODULE),
        (["--no-python"], ScriptForm.PROGRAM),
        (["--run-path"], ScriptForm.RUN_PATH),
        (["--run-path", "--no-python", "-m"], ScriptForm.RUN_PATH),
    ],
)
def test_the_form_of_the_script_is_said_by_flags(argv: list[str], form: ScriptForm) -> None:
    assert read(*argv).form is form


def test_the_older_form_passes_the_local_rank() -> None:
    assert read(old=True).passes_local_rank
    assert not read("--use-env", old=True).passes_local_rank
    assert not read().passes_local_rank


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nnodes=0"], "--nnodes=0: at least one host is needed"),
        (["--nnodes=3:2"], "--nnodes=3:2: the least, 3, is more than the most, 2"),
        (["--nnodes=1:2:3"], "--nnodes='1:2:3' is not valid; expected a number or MIN:MAX"),
        (["--nnodes=two"], "--nnodes='two' is not valid"),
        (["--nproc-per-node=0"], "--nproc-per-node=0: at least one rank is needed"),
        (["--nproc-per-node=-2"], "--nproc-per-node=-2: at least one rank is needed"),
        (["--nnodes=1:2"], "--nnodes=1:2 may change, but --rdzv-backend=static has a fixed set"),
        (["--nnodes=2", "--node-rank=2"], "--node-rank=2 is not one of the 2 hosts"),
        (["--node-rank=1", "--master-port=1"], "--node-rank=1 is not one of the 1 hosts"),
        (["--nnodes=2", "--node-rank=-1"], "--node-rank=-1 is not one of"),
        (["--nnodes=2", "--master-port=70000"], "--master-port=70000: expected a number from 0"),
        (["--nnodes=2", "--rdzv-endpoint=n01"], "--rdzv-endpoint='n01' has no port"),
        (["--nnodes=2", "--rdzv-endpoint=n01:x"], "--rdzv-endpoint='n01:x': the port must be"),
        (["--rdzv-backend=c10d", "--rdzv-endpoint=/"], "--rdzv-endpoint='/' is not valid"),
        (["--rdzv-backend="], "--rdzv-backend='' is not valid"),
        (["--standalone", "--nnodes=2"], "--standalone is for one host, but --nnodes=2 wants"),
        (["--rdzv-conf=timeout"], "--rdzv-conf='timeout': 'timeout' is not valid"),
        (["--rdzv-conf==3"], "--rdzv-conf='=3': '=3' is not valid"),
        (["--max-restarts=-1"], "--max-restarts=-1 is less than 0"),
        (["--monitor-interval=0"], "--monitor-interval=0.0: expected seconds, more than 0"),
        (["--shutdown-timeout=-1"], "--shutdown-timeout=-1 is less than 0"),
        (["--timeout=0"], "--timeout=0 is not valid; expected a number of seconds above 0"),
        (["--timeout=nan"], "--timeout='nan' is not valid"),
        (["--redirects=4"], "--redirects='4' is not valid; expected 0, 1, 2 or 3"),
        (["--tee=0:1,1"], "--tee='0:1,1' is not valid"),
        (["--local-ranks-filter=0,x"], "--local-ranks-filter='0,x' is not valid"),
        (["--logs-specs=mine"], "--logs-specs='mine' is unknown; only default is here"),
        (["--event-log-handler=x"], "--event-log-handler='x' is unknown; expected one of null"),
        (["--signals-to-handle=SIGNO"], "'SIGNO' is no signal"),
        (["--signals-to-handle=SIGKILL"], "nothing can handle SIGKILL"),
        (["--no-python", "-m"], "--no-python and --module exclude each other"),
        (["--agent-listen=localhost"], "--agent-listen='localhost' has no port"),
        (["--nproc-per-node=gpu"], "--nproc-per-node=gpu: Cuda is not available"),
    ],
)
def test_what_does_not_fit_is_named_with_its_value(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert words in caught.value.what
    assert "\n" not in caught.value.what
    assert len(caught.value.what) <= 120


def test_a_program_gets_no_local_rank_in_the_older_form() -> None:
    with pytest.raises(UsageError, match="--no-python needs --use-env as well"):
        read("--no-python", old=True)


def test_a_rank_without_a_gpu_of_its_own_is_an_error_when_each_is_to_have_one() -> None:
    flags = ["--virtual-local-rank", "--nproc-per-node=3"]
    assert read(*flags).virtual_local_rank
    with pytest.raises(DistError, match="3 ranks want a GPU each, but CUDA_VISIBLE_DEVICES=4,5"):
        read(*flags, CUDA_VISIBLE_DEVICES="4,5")
