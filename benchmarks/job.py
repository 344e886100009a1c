"""Starts the ranks of a job that is measured, as a launcher would, and hands over what rank 0 printed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import free_port


def start_with_agent(
    folder: Path,
    ranks: int,
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    **streams: int,
) -> list[subprocess.Popen[bytes]]:
    """Ranks that meet in a file of `folder`; the first one starts the agent."""
    base = os.environ | {
        "WORLD_SIZE": str(ranks),
        "DISTDBG_STORE": f"local://{folder}/store",
        "DISTDBG_TOKEN": "of this measurement",
        "DISTDBG_AGENT": "1",
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **(variables or {}),
    }
    return [
        subprocess.Popen(command, env={**base, "RANK": str(rank)}, **streams)  # type: ignore[call-overload]  # stdout or stderr
        for rank in range(ranks)
    ]


def torch_environs(size: int, variables: Mapping[str, str]) -> list[dict[str, str]]:
    """By rank, the variables of a job of torch on this host."""
    base = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **variables,
    }
    return [{**base, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def measured_by_rank_0(
    command: Sequence[str],
    size: int,
    variables: Mapping[str, str],
    limit_s: float,
    stderr: int | None = None,
) -> Any:
    """The JSON that rank 0 of a job of torch printed; None where it failed or took too long."""
    ranks = [
        subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
            stderr=stderr,
        )
        for rank, environ in enumerate(torch_environs(size, variables))
    ]
    out = b""
    try:
        out, _ = ranks[0].communicate(timeout=limit_s)
        for process in ranks[1:]:
            process.wait(limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return json.loads(out) if out and ranks[0].returncode == 0 else None
