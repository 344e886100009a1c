"""Data parallel training: what is built on the collectives, for any framework.

join.py         Join: ranks with different numbers of batches
batches.py      batches: a loop whose steps, and whose end, are in the record
sampler.py      DistributedSampler: which samples a rank takes
permutation.py  the order that torch.randperm gives for a seed, without torch; pure
gradient_reducer.py  GradientReducer: averages of gradients, for arrays without autograd
tree.py         nested dicts and lists of arrays; pure
reducer/        what it and DistributedDataParallel (torch_bridge/data_parallel) are made of
hooks/          comm hooks: other ways to reduce a bucket
"""

from distdbg.runtime.parallel.batches import batches
from distdbg.runtime.parallel.gradient_reducer import GradientReducer
from distdbg.runtime.parallel.join import Join, Joinable, JoinHook
from distdbg.runtime.parallel.sampler import DistributedSampler

__all__ = ["DistributedSampler", "GradientReducer", "Join", "JoinHook", "Joinable", "batches"]
