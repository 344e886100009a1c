"""Makes `benchmarks` importable: the simulation of the tree is there, and no wheel contains it."""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]

if (CHECKOUT / "benchmarks").is_dir():
    # Last, or the checkout's distdbg would hide an installed one.
    sys.path.append(str(CHECKOUT))
else:
    collect_ignore = ["test_tree_simulation.py"]
