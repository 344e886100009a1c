"""Tools for tests of distributed programs; public.

`run_ranks` runs a function in real processes, one per rank; `leaks` tells what a test left behind.
"""

from __future__ import annotations

from distdbg.testing.ranks import RankResult, RanksFailed, run_ranks

__all__ = ["RankResult", "RanksFailed", "run_ranks"]
