"""What torch.multiprocessing has of starting processes: `import distdbg.multiprocessing as mp`."""

from distdbg.launch.failures import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
)
from distdbg.launch.spawn import ProcessContext, spawn, start_processes

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "spawn",
    "start_processes",
]
