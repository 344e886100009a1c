"""Measurements of distdbg beside other libraries on the same machine, in the same run.

python -m benchmarks            times of all ops (`make bench` runs this and the next)
python -m benchmarks.overhead   what the record and the check cost, beside torch's DETAIL
python -m benchmarks.shared_arrays  ops on shared arrays, beside the machine's own copy
python -m benchmarks.small      the small path alone: 8 B all_reduce, barrier, send_recv
python -m benchmarks.scale      how the cost of an op grows with the number of ranks
python -m benchmarks.start_jobs how long a launch takes, beside torchrun; needs torch
python -m benchmarks.abort     how soon a rank notices an abort, wherever it waits
python -m benchmarks.init_kills  how soon a death inside init_process_group is named
python -m benchmarks.agent     what the agent costs; benchmarks.agent_tree: what agents tell each other
python -m benchmarks.top        how quick the dashboard is, over many ranks and large replays, and its cost
python -m benchmarks.export     what it costs to write a run of a million ops in other tools' formats
python -m benchmarks.store      set+get per second of TCPStore beside torch's

cases.py      what is measured: kinds, sizes and what a size means
buffers.py    the arrays of one case, their contents and the expected results
measure.py    how: blocks of iterations inside one set of ranks, the same for every library
libraries.py  the four libraries behind one small interface; runs inside a rank
rank.py       the program that every rank runs
launch.py     how the ranks of each library are started and always ended
job.py        how the ranks of jobs of torch, and of jobs with an agent, are started
peers.py      which libraries are installed, in which versions and with which settings
machine.py    facts about the machine that a number needs beside it
table.py      results to text; targets met or missed
overhead/     what the record and the check cost
"""

from __future__ import annotations

import os

# One process fewer on the machine that is measured; agent.py and start_jobs.py are about it and start it.
os.environ.setdefault("DISTDBG_AGENT", "0")
