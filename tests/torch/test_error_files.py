"""Error files that torch writes are read here, and torch's launcher reads those written here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distdbg.record.error_file import read_error_file

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_python(warm_python: WarmPython) -> RunPython:
    def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.endswith("ERROR_FILE")}
        return warm_python.run(["-c", script], env=kept | environ, timeout=120)

    return run


def test_what_torchs_decorator_writes_is_read(tmp_path: Path, run_python: RunPython) -> None:
    path = tmp_path / "error.json"
    script = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("no data")
main()
"""
    assert run_python(script, TORCHELASTIC_ERROR_FILE=str(path)).returncode == 1
    facts = read_error_file(path)
    assert facts is not None
    assert facts.text == "ValueError: no data"
    assert "ValueError: no data" in facts.traceback
    assert facts.wall_ns == path.stat().st_mtime_ns


def test_what_our_decorator_writes_is_read_by_torch(tmp_path: Path, run_python: RunPython) -> None:
    path = tmp_path / "error.json"
    script = """
import distdbg as dist
@dist.record
def main():
    raise ValueError("no data")
main()
"""
    assert run_python(script, TORCHELASTIC_ERROR_FILE=str(path)).returncode == 1
    reader = f"""
import json
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file={str(path)!r})
text = str(ChildFailedError("job", {{0: failure}}))
print(json.dumps([failure.message["message"], failure.timestamp, text]))
"""
    done = run_python(reader)
    assert done.returncode == 0, done.stderr
    message, timestamp, text = json.loads(done.stdout)
    assert message == "ValueError: no data"
    assert timestamp > 1_700_000_000
    assert "Traceback" in text


def test_a_launcher_of_torch_inside_a_rank_passes_its_childs_file_on(
    tmp_path: Path, run_python: RunPython
) -> None:
    path, child = tmp_path / "error.json", tmp_path / "child.json"
    extra = {"py_callstack": "Traceback", "timestamp": "1795310000"}
    child.write_text(json.dumps({"message": {"message": "KeyError: 'x'", "extraInfo": extra}}))
    script = f"""
import distdbg as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
@dist.record
def main():
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=-11, error_file={str(child)!r})
    raise ChildFailedError("job", {{1: failure}})
main()
"""
    assert run_python(script, DISTDBG_ERROR_FILE=str(path)).returncode == 1
    facts = read_error_file(path)
    assert facts is not None
    assert (facts.text, facts.code) == ("KeyError: 'x'", -11)
