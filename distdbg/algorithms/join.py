"""As torch.distributed.algorithms.join: `from distdbg.algorithms.join import Join, Joinable, JoinHook`."""

from distdbg.runtime.parallel.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
