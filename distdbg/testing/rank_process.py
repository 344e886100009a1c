"""What one rank of `run_ranks` does: import a file by path, call a function, write its result."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import signal
import sys
from pathlib import Path


def run_function(file: str, name: str, encoded: str, result_file: str) -> None:
    """Call the function with arguments in JSON; what it raises ends the process with a traceback."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
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
