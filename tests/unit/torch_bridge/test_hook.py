"""The hook: what it costs where torch is not imported, and that it leaves imports as they are."""

from __future__ import annotations

import subprocess
import sys

LINES = """
import sys
import distdbg  # whose own finder, in an editable install, loads more
before = set(sys.modules)
from distdbg.torch_bridge.hook import Finder, install, uninstall
install(); install()
print(sum(isinstance(finder, Finder) for finder in sys.meta_path))
print(sorted(name for name in set(sys.modules) - before if not name.startswith("distdbg")))
import json.tool
print(type(sys.modules["json.tool"].__loader__).__name__)
uninstall()
print(sum(isinstance(finder, Finder) for finder in sys.meta_path))
"""


def test_the_hook_loads_nothing_and_is_there_once() -> None:
    done = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, check=True)
    once, loaded, loader, none = done.stdout.splitlines()
    assert (once, none) == ("1", "0")
    assert "numpy" not in loaded
    assert "torch" not in loaded
    assert "importlib.util" not in loaded
    assert loader == "SourceFileLoader"


def test_a_value_that_says_neither_is_told_once() -> None:
    script = """
from distdbg.torch_bridge.hook import install_if
install_if("maybe"); install_if("maybe")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == (
        "distdbg: the variable DISTDBG_TORCH has 'maybe'; expected 1 or 0; nothing is watched\n"
    )
