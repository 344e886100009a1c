"""torch.distributed on our runtime, and the only place that imports torch.

backend/      a ProcessGroup of torch's over one of ours: init_process_group("distdbg")
guarded.py    errors of ours end the watching, and not the program
call_sites.py which lines are none of the program's
training/     what DDP, FSDP and optimizers know of an op, told to the record
store.py      a torch Store as ours

Importing this package costs nothing and imports no torch. `register()` makes "distdbg" known to torch; it
runs by itself when torch is imported before or after this package is installed (entry point
`torch.backends`, which TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches off).

data_parallel  DistributedDataParallel for torch modules, over a distdbg group
functional     functional collectives in autograd's graph
hook           installs the tap when a program imports torch.distributed; costs next to nothing where none
               does
job            one process of a torch job, watched
tap            the ops of torch's groups, seen and checked where torch dispatches them
world          a World of ours beside torch's groups
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

#: As `init_process_group` takes it.
NAME = "distdbg"
OLDEST_TORCH = (2, 4)


def register() -> None:
    """Make "distdbg" a backend of torch.distributed for CPU tensors; imports torch. Idempotent."""
    torch_dist: Any = import_module("torch.distributed")
    if not torch_dist.is_available():
        from distdbg.errors import ConfigError

        raise ConfigError("this build of torch has no torch.distributed")
    if NAME not in torch_dist.Backend.backend_list:
        torch_dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])


def autoload() -> None:
    """Register, at the end of `import torch`; never fails, for an error here would fail that import."""
    torch_dist = getattr(sys.modules.get("torch"), "distributed", None)
    if hasattr(getattr(torch_dist, "Backend", None), "register_backend"):
        register()


def is_old(version: str) -> bool:
    """Whether a version of torch lacks what the backend is made of."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST_TORCH


def _make(options: Any, pg_options: Any) -> Any:
    """What torch calls for each group on this backend."""
    version = str(sys.modules["torch"].__version__)
    if is_old(version):
        from distdbg.errors import ConfigError

        raise ConfigError(
            f"torch {version} is too old for the backend distdbg: it needs torch 2.4 or newer",
            hint="update torch, or use another backend",
        )
    from distdbg.torch_bridge.backend.creation import make_group

    return make_group(options, pg_options)


autoload()
