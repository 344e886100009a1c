"""The same command lines under torchrun and `distdbg run`: what is printed, kept, and told to ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jobs import running

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.ranks,
    pytest.mark.slow,
]

SCRIPT = """
import json, os, sys, time
rank, count = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print("a line of rank", rank, flush=True)
print("loss", rank, count, sys.argv[1:], flush=True)
print("a complaint of rank", rank, file=sys.stderr)
if rank == "0" and os.environ.get("PROBE"):
    with open(os.environ["PROBE"], "w") as file:
        json.dump(dict(os.environ), file)
sys.stderr.flush()
if count < os.environ.get("FAILS", "0"):
    spoken = os.path.join(os.path.dirname(os.environ["PROBE"]), os.environ["SUBJECT"] + count)
    if rank == "0":
        open(spoken, "w").close()
        time.sleep(600)  # the launcher ends it when the other has failed
        sys.exit(2)
    deadline = time.monotonic() + 300
    while not os.path.exists(spoken) and time.monotonic() < deadline:
        time.sleep(0.01)  # what rank 0 says is compared
    sys.exit(1)
"""
#: Where files and ports are, and what each launcher needs for itself.
OWN = (
    "DISTDBG_",
    "TEST_",
    "MASTER_",
    "PYTHONFAULTHANDLER",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
)
#: A job that is given no name gets one by chance.
RANDOM = (
    "TORCHELASTIC_RUN_ID",
    "LC_CTYPE",
    "TMPDIR",
    "PYTHONPATH",
    "PROBE",
    "SUBJECT",
    "_",
    "LEFTOVERS_",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="job-"))
    (made / "train.py").write_text(SCRIPT)
    yield made
    shutil.rmtree(made)


Seen = tuple[int, list[str], list[str], dict[str, str], dict[str, list[str]]]


def under_both(
    warm_python: WarmPython, folder: Path, flags: list[str], environ: dict[str, str]
) -> tuple[Seen, Seen]:
    """Code, lines of both streams, variables of rank 0, and lines by the name of each log file."""
    line = ["--nproc-per-node=2", *flags, str(folder / "train.py"), "--lr", "1"]
    base = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    base |= {"TMPDIR": str(folder), "PROBE": str(folder / "theirs.json"), "SUBJECT": "theirs"}
    theirs = warm_python.run(
        ["-m", "torch.distributed.run", f"--log-dir={folder}/theirs", *line], env=base | environ
    )
    ours_environ = {**environ, "PROBE": str(folder / "ours.json"), "SUBJECT": "ours"}
    with running([f"--log-dir={folder}/ours", *line], folder, ours_environ) as job:
        ours = job.wait(90.0)
    return (
        seen(folder, "theirs", theirs.returncode, theirs.stdout, theirs.stderr),
        seen(folder, "ours", ours.code, ours.out, ours.err),
    )


def seen(folder: Path, name: str, code: int, out: str, err: str) -> Seen:
    reported = {}
    if (probe := folder / f"{name}.json").exists():
        reported = json.loads(probe.read_text())
    said = {key: value for key, value in reported.items() if not key.startswith((*OWN, *RANDOM))}
    files = {}
    for path in sorted((folder / name).rglob("*.log")):
        # below <log dir>/<name of the run, and some random letters>/
        _, *parts = path.relative_to(folder / name).parts
        lines = sorted(path.read_text().splitlines())
        if lines or parts[-1] in ("stdout.log", "stderr.log"):
            # torchrun also makes files of selected lines for streams that it does not read
            files["/".join(parts)] = lines
    words = ("a line", "loss", "a complaint")
    return (
        code,
        sorted(out.splitlines()),
        sorted(line for line in err.splitlines() if any(word in line for word in words)),
        said,
        files,
    )


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        (["--role=trainer", "--rdzv-id=j", "-r", "0:1,1:2", "-t", "1"], {}),
        (["--tee=3", "--local-ranks-filter=1"], {"PET_MAX_RESTARTS": "2", "PET_STANDALONE": "1"}),
        (["-r3", "-t2", "--duplicate-stdout-filters=loss,x", "--duplicate-stderr-filters=0"], {}),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_same_is_printed_told_and_kept(
    warm_python: WarmPython, folder: Path, flags: list[str], environ: dict[str, str]
) -> None:
    theirs, ours = under_both(warm_python, folder, flags, environ)
    for their_part, our_part in zip(theirs, ours, strict=True):
        assert our_part == their_part


@pytest.mark.parametrize("allowed", [0, 1])
def test_restarts_are_counted_and_kept_alike(
    warm_python: WarmPython, folder: Path, allowed: int
) -> None:
    flags = [f"--max-restarts={allowed}", "--tee=1"]
    theirs, ours = under_both(warm_python, folder, flags, {"FAILS": "1"})
    assert ours[0] == theirs[0] == 1 - allowed
    assert ours[1] == theirs[1]
    assert ours[3] == theirs[3]
    assert ours[4].keys() == theirs[4].keys()
    assert {name.split("/")[0] for name in ours[4]} == {f"attempt_{n}" for n in range(1 + allowed)}
