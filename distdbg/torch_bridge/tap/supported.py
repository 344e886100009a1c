"""Whether this version of torch is one that the tap knows."""

from __future__ import annotations

from typing import Any

from distdbg.errors import ConfigError

_OLDEST = (2, 6)


def check_torch(torch: Any) -> None:
    """Raise ConfigError where the tap would not work."""
    version = str(torch.__version__)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        raise ConfigError(
            f"torch {version} is too old; the oldest supported is {'.'.join(map(str, _OLDEST))}"
        )
    dist = torch.distributed
    for kind, name in (("ProcessGroup", "unbox"), ("Work", "unbox"), ("Work", "wait")):
        if not hasattr(getattr(dist, kind, None), name):
            raise ConfigError(f"torch {version} has no torch.distributed.{kind}.{name}")
    if not torch._C._jit_get_schemas_for_operator("c10d::allreduce_"):
        raise ConfigError(f"torch {version} has no op c10d::allreduce_")
