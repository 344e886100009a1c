"""Data parallel training: what is built on the collectives, for any framework.

sampler.py      DistributedSampler: which samples a rank takes
permutation.py  the order that torch.randperm gives for a seed, without torch; pure
"""

from distdbg.runtime.parallel.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
