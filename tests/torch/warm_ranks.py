"""What `run_ranks` does, with ranks that have torch imported already."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warm_python import WarmPython

LIMIT_S = 240
#: Of the ranks' module, by its name: a test's file is on the path of its ranks.
CALL = f"""
import faulthandler, importlib, json, sys
faulthandler.enable()
faulthandler.dump_traceback_later({LIMIT_S}, exit=True)
module, name, arguments, result = sys.argv[1:]
value = getattr(importlib.import_module(module), name)(**json.loads(arguments))
with open(result, "w") as file:
    json.dump(value, file)
"""


def run_warm_ranks(
    warm_python: WarmPython,
    tmp_path: Path,
    function: Callable[..., Any],
    world_size: int,
    *,
    expect_exit: Mapping[int, int] | None = None,
    env: Mapping[str, str] | None = None,
    **arguments: Any,
) -> list[Any]:
    """Call `function(**arguments)` once per rank and return the results; None of one that died."""
    words = [Path(function.__code__.co_filename).stem, function.__name__, json.dumps(arguments)]
    base = {
        **os.environ,
        "PYTHONPATH": os.fspath(Path(__file__).parent),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "DISTDBG_STORE": f"local://{tmp_path}/store",
        "DISTDBG_TOKEN": hashlib.sha256(os.fsencode(tmp_path)).hexdigest(),
        **(env or {}),
    }
    results = [tmp_path / f"rank{rank}.json" for rank in range(world_size)]
    outputs = [tmp_path / f"rank{rank}.out" for rank in range(world_size)]
    ranks = []
    with ExitStack() as stack:
        for rank in range(world_size):
            output = stack.enter_context(open(outputs[rank], "wb"))
            process = warm_python.start(
                ["-c", CALL, *words, os.fspath(results[rank])],
                env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=output,
                stderr=output,
            )
            stack.callback(process.close)
            ranks.append(process)
        codes = {rank: process.wait(LIMIT_S + 10) for rank, process in enumerate(ranks)}
    wanted = {rank: (expect_exit or {}).get(rank, 0) for rank in codes}
    said = [f"rank {rank}:\n{output.read_text()}" for rank, output in enumerate(outputs)]
    assert codes == wanted, "\n".join([f"exit codes {codes}, not {wanted}", *said])
    return [json.loads(path.read_text()) if path.exists() else None for path in results]
