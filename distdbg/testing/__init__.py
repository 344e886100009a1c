"""Tools for tests of distributed programs; public.

`run_ranks` runs a function in real processes, one per rank; `leaks` tells what a test left behind.

conformance         one set of tests per interface, for every implementation of it, also yours
fork_server         fresh processes in milliseconds
fork_server_main    the process behind `fork_server`
leaks               what a test may leave behind by mistake
ranks               run a test function in real processes, one per rank, and explain what went wrong
"""

from __future__ import annotations

from distdbg.testing.ranks import RankResult, RanksFailed, run_ranks

__all__ = ["RankResult", "RanksFailed", "run_ranks"]
