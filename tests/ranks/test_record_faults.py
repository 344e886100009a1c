"""A rank that cannot write its record goes on, says so once, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist

_CAPSET_VERSION_3 = 0x20080522
_MOST_NBYTES = 64 * 2**20
#: More than that for a record.
_MANY_OPS = 1 << 18


def give_up_privileges() -> None:
    """From here on modes hold for root, too."""
    header = (ctypes.c_uint32 * 2)(_CAPSET_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def job(fault: str) -> str:
    if fault == "mode":
        give_up_privileges()
    if fault == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_NBYTES, _MOST_NBYTES))
    dist.init_process_group()
    total = np.ones(3)
    with dist.span("forward"):
        dist.all_reduce(total)
    assert total.tolist() == [2.0] * 3
    reported = ""
    try:
        dist.all_reduce(np.ones(3 + dist.get_rank()))
    except dist.MismatchError as error:
        reported = str(error)
    dist.barrier()
    dist.destroy_process_group()
    return reported


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("mode", "not writable"),
        ("parent", "Permission denied"),
        ("file", "File exists"),
        ("size", "reserving the space: File too large"),
    ],
)
def test_a_job_that_cannot_be_recorded_runs_on_with_one_warning_per_rank(
    ranks: Callable[..., list[Any]], tmp_path: Path, fault: str, reason: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    env = {"DISTDBG_RUN_DIR": str(folder)}
    if fault == "file":
        folder.rmdir()
        folder.write_text("mine")
    if fault == "size":
        env["DISTDBG_RECORD_OPS"] = str(_MANY_OPS)
    if fault in ("mode", "parent"):
        folder.chmod(0o555)
    if fault == "parent":
        env["DISTDBG_RUN_DIR"] = str(folder / "below")
    try:
        reported = ranks(job, 2, env=env, fault="mode" if fault == "parent" else fault)
    finally:
        folder.chmod(0o755)
    for rank, text in enumerate(reported):
        said = (tmp_path / "ranks0" / f"rank{rank}.out").read_text().splitlines()
        assert len(said) == 1, said
        assert f"[rank {rank}]" in said[0]
        assert "continues without a record" in said[0]
        assert reason in said[0]
        # Call sites come from the record, which is in memory then.
        assert f"ranks 0-1 called all_reduce at {os.path.basename(__file__)}:" in text
    if fault == "file":
        assert folder.read_text() == "mine"
    else:
        assert list(folder.iterdir()) == []
