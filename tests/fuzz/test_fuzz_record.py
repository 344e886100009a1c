from __future__ import annotations

import runpy
from pathlib import Path


def test_the_fuzzer_finds_nothing_in_a_second() -> None:
    fuzzer = runpy.run_path(str(Path(__file__).parent / "fuzz_record.py"))
    fuzzer["fuzz_blindly"](1.0, 1)
