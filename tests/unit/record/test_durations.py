from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import distdbg
from distdbg.record.durations import age_text, duration_text, nbytes_text

DURATIONS = {
    -1.0: "0 ns",
    0.0: "0 ns",
    250e-9: "250 ns",
    1.02e-6: "1.02 us",
    33.6e-3: "33.6 ms",
    0.099: "99 ms",
    0.0996: "0.10 s",
    0.35: "0.35 s",
    0.9949: "0.99 s",
    0.996: "1.0 s",
    4.71: "4.7 s",
    9.949: "9.9 s",
    9.96: "10 s",
    12.2: "12 s",
    59.4: "59 s",
    59.6: "1 min",
    200.0: "3 min 20 s",
    3599.6: "1 h",
    3900.0: "1 h 5 min",
    86399.0: "23 h 59 min",
    183_600.0: "2 d 3 h",
}


@pytest.mark.parametrize(("seconds", "text"), DURATIONS.items())
def test_a_duration_has_one_spelling(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_page_of_an_analysis_spells_durations_alike() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js")  # make check installs it
    page = Path(distdbg.__file__).parent / "render/page/page.js"
    function = re.search(r"^  const seconds = .*?^  };", page.read_text(), re.DOTALL | re.MULTILINE)
    assert function is not None
    micros = [seconds * 1e6 for seconds in DURATIONS if seconds >= 0]
    program = f"{function[0]}\nconsole.log(JSON.stringify({json.dumps(micros)}.map(seconds)))"
    said = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == [text for seconds, text in DURATIONS.items() if seconds >= 0]


def test_ages_and_sizes() -> None:
    assert age_text(12) == "12 s ago"
    sizes = [0, 8, 1023, 1024, 1.5 * 2**20, 1.4 * 2**30, 1024**2 - 1, 5 * 2**40, 5000 * 2**40]
    assert [nbytes_text(size) for size in sizes] == [
        "0 B", "8 B", "1023 B", "1.0 KiB", "1.5 MiB", "1.4 GiB", "1.0 MiB", "5.0 TiB", "5000.0 TiB",
    ]  # fmt: skip
