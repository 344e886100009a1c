"""The names of the package once more, for scripts that take them from torch.distributed.distributed_c10d."""

from __future__ import annotations

import distdbg
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.world import current


def _get_default_group() -> ProcessGroup:
    """Return the group of all ranks; UsageError before init_process_group."""
    return current().require_default()


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(distdbg, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *distdbg.__all__})
