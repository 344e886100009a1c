"""Tools for tests of distributed programs; public.

`run_ranks` runs a function in real processes, one per rank; `leaks` tells what a test left behind.

collector           A collector of OpenTelemetry's for those who only want to send
conformance         one set of tests per interface, for every implementation of it, also yours
fork_server         fresh processes in milliseconds
fork_server_main    the process behind `fork_server`
hosts               several hosts on one machine
jobs                one `distdbg run` for a test
leaks               what a test may leave behind by mistake
leftovers           what a job may leave behind on its host
network             hosts made of namespaces
noisy_job           plays a job of tensor- and data-parallel ranks with the noise of real ones, as a
                    session
planted             makes large sessions in memory with one fault planted, fast
ports               ports for servers that a test starts
prometheus          A Prometheus of one's own
rank_process        what one rank of `run_ranks` does
ranks               run a test function in real processes, one per rank, and explain what went wrong
record_builder      builds a record in memory from a few lines, by the layout alone
record_examples     small records for tests of readers
reference           what each kind of collective computes, in plain NumPy and obviously right
rights              the rights of an ordinary user for a while, also for root
session_builder     writes a session by hand, in few lines, as tests of the diagnosis need it
store_engine        an Engine in plain Python over a Store
store_ranks         ranks as threads over one in-memory store and the reference engine
terminals           A program on a terminal of its own, for tests that type
torch_dump_builder  writes dumps of torch's flight recorder by hand, in few lines, as tests of the
                    diagnosis need them
"""

from __future__ import annotations

from distdbg.testing.ranks import RankResult, RanksFailed, run_ranks

__all__ = ["RankResult", "RanksFailed", "run_ranks"]
