"""The launcher's flags and what it tells a rank, side by side with the torchrun that is installed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from typing import TYPE_CHECKING

from torch.distributed.elastic.multiprocessing import Std as TorchStd
from torch.distributed.elastic.multiprocessing.api import to_map
from torch.distributed.run import config_from_args, get_args_parser

from distdbg.launch.environment import RanksStart, rank_command, rank_environment
from distdbg.launch.flags import parse
from distdbg.launch.options import LaunchHost, read_options
from distdbg.launch.output_streams import parse_std
from distdbg.launch.rendezvous.round import NodeFacts

if TYPE_CHECKING:
    from warm_python import WarmPython

PROBE = """
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]) + "\\n", end="", flush=True)
"""
LINES = [
    [],
    ["--nnodes=2:3", "--nproc_per_node", "4", "--rdzv-backend=c10d", "--rdzv_endpoint=n01:1"],
    ["-r", "0:1,1:2", "-t3", "--log-dir=x", "--local_ranks_filter=0,1", "--role", "trainer"],
    ["--standalone", "--max-restarts=3", "--monitor_interval=5", "--start-method=fork"],
    ["--duplicate-stdout-filters=a,,b,c", "--duplicate_stderr_filters", "x", "--numa-binding=node"],
    ["--node-rank=1", "--master_addr=n01", "--master-port=7", "--local-addr=::1", "--rdzv-id=j"],
    ["--signals-to-handle=SIGUSR1", "--shutdown-timeout=3", "--virtual-local-rank", "--run-path"],
    ["--rdzv-conf=timeout=3,is_host=1", "--event-log-handler=console", "--logs-specs=default"],
    ["-m", "--no-python"],
]
ENVIRONS = [
    {},
    {"PET_NNODES": "3", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "2", "PET_RDZV_ID": "j"},
    {"PET_DUPLICATE_STDOUT_FILTERS": "a,b", "PET_MODULE": "0", "PET_MONITOR_INTERVAL": "2.5"},
]


@pytest.mark.parametrize("environ", ENVIRONS, ids=len)
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_command_line_means_the_same(
    line: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PET_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    argv = [*line, "s.py", "--x", "-r", "y"]
    theirs, ours = vars(get_args_parser().parse_args(argv)), vars(parse(argv, environ))
    for name, value in theirs.items():
        same = ours[name] if not isinstance(value, list) else list(ours[name])
        assert same == value, name
        assert type(same) is type(value), name


@pytest.mark.parametrize("text", ["0", "1", "2", "3", "0:1", "0:3,1:0,2:1", "2:2"])
def test_streams_mean_the_same(text: str) -> None:
    theirs = to_map(TorchStd.from_str(text), 3)
    assert [int(std) for std in parse_std("--tee", text, 3)] == [int(theirs[n]) for n in range(3)]


@pytest.mark.parametrize(
    "line", [[], ["-m"], ["--no-python"], ["--module", "--nproc-per-node=2"]], ids=" ".join
)
def test_a_ranks_command_line_is_the_same(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    argv = [*line, "s", "--out=${local_rank}"]
    _, program, arguments = config_from_args(get_args_parser().parse_args([*argv]))
    options = read_options(parse(argv, {}), {}, LaunchHost(cpus=2, gpus=0))
    ours = rank_command(options, 5, environ={}, executable=sys.executable)
    assert ours == (program, *(word.replace("${local_rank}", "5") for word in arguments))


@pytest.mark.slow
def test_a_rank_is_told_the_same_variables(tmp_path: Path, warm_python: WarmPython) -> None:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    flags = ["--nproc-per-node=2", "--max-restarts=3", "--role=trainer", "--rdzv-id=job"]
    flags += ["--master-port=0", f"--log-dir={tmp_path}"]
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = warm_python.run(["-m", "torch.distributed.run", *flags, str(script), "a"], env=base)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(line) for line in done.stdout.splitlines()]
    theirs = {environ["RANK"]: environ for _, environ in ranks}
    assert {argv[1] for argv, _ in ranks} == {"a"}

    options = read_options(parse([*flags, "s.py"], base), base, LaunchHost(cpus=2, gpus=0))
    node = NodeFacts(name="a", addr="127.0.0.1", host="a", nproc=2, role="trainer")
    start = RanksStart(
        nodes=(node,),
        node_rank=0,
        restarts=0,
        run="run",
        folder=tmp_path,
        host="a",
        store="tcp://127.0.0.1:1/x",
        token="secret",
        master_addr="127.0.0.1",
        master_port=1,
    )
    added = {"STORE", "TOKEN", "RUN", "RUN_DIR", "HOST", "AGENT", "TORCH", "ERROR_FILE"}
    #: Where files and ports are is each launcher's own affair; the store is explained in environment.py.
    differ = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}
    for local_rank in range(2):
        ours = rank_environment(
            options, start, local_rank, environ=base, error_file=tmp_path / "error.json"
        )
        reported = theirs[str(local_rank)]
        reported.pop("LC_CTYPE", None)  # Python sets it, not torchrun
        own = {f"DISTDBG_{name}" for name in added} | {"PYTHONFAULTHANDLER"}
        assert set(ours) - own == set(reported)
        for name in set(reported) - differ:
            assert ours[name] == reported[name], name
