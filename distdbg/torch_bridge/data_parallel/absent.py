"""The name DistributedDataParallel where torch is not installed: it says so when it is used."""

from __future__ import annotations

from distdbg.errors import ConfigError


class DistributedDataParallel:
    """Wraps torch modules, and there are none."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise ConfigError(
            "DistributedDataParallel wraps torch modules, and torch is not installed",
            hint="install torch; for NumPy arrays there is GradientReducer",
        )
