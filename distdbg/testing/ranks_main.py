"""What one rank of `run_ranks` executes: import a file by path, call a function, write its result.

Runs as a script: `ranks_main.py FILE QUALNAME KWARGS_JSON RESULT_FILE PARENT_PID`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Carry out one rank; an exception of the function ends the process with its traceback."""
    file, name, encoded, result_file, parent_pid = argv
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # A script's folder comes first on the path; ours would shadow modules of the test.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]

    from distdbg.launch.parent_death import die_with_parent

    die_with_parent(int(parent_pid))
    spec = importlib.util.spec_from_file_location("rank_functions", file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look modules up by name
    spec.loader.exec_module(module)
    function: object = module
    for part in name.split("."):
        function = getattr(function, part)
    if not callable(function):
        sys.exit(f"{name} in {file} is not a function")
    value = function(**json.loads(encoded))
    # Whole or not at all: the reader must not see half a result of a rank that was killed.
    partial = Path(result_file + ".partial")
    partial.write_text(json.dumps(value))
    partial.replace(result_file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
