"""Data parallel training: what is built on the collectives, for any framework.

join              Join: ranks with different numbers of batches
batches           batches: a loop whose steps, and whose end, are in the record
sampler           DistributedSampler: which samples a rank takes
gradient_reducer  GradientReducer: averages of gradients, for arrays without autograd
hooks             comm hooks: other ways than one all_reduce to make a bucket the average of all ranks
reducer           the gradient reducer itself, for arrays of any library; DistributedDataParallel
                  (torch_bridge/data_parallel) is made of it as well
"""

from distdbg.runtime.parallel.batches import batches
from distdbg.runtime.parallel.gradient_reducer import GradientReducer
from distdbg.runtime.parallel.join import Join, Joinable, JoinHook
from distdbg.runtime.parallel.sampler import DistributedSampler

__all__ = ["DistributedSampler", "GradientReducer", "Join", "JoinHook", "Joinable", "batches"]
