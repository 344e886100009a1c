"""Rank 1 leaves its array on the host: over NCCL its op meets no other. NCCL is a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import distdbg as dist
from distdbg.runtime.backends.nccl import library

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.unit.nccl.stand_in import Machine, of_rank

library._library = Machine().library()
dist.init_process_group("cpu:gloo,cuda:nccl")
dist.set_debug_level(dist.DebugLevel.DETAIL)
dist.all_reduce(of_rank([1.0]))
dist.all_reduce(np.ones(1, np.float32) if dist.get_rank() == 1 else of_rank([1.0]))
