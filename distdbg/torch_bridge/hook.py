"""Installs the tap when a program imports torch.distributed; costs next to nothing where none does.

This module is loaded at the start of every Python where DISTDBG_TORCH is set, so it imports nothing but sys:
not even importlib.util, which would double the time that an interpreter takes to start. The tap itself is
loaded with the first process group that torch makes.
"""

from __future__ import annotations

import sys
from typing import Any

_TARGET = "torch.distributed.distributed_c10d"
_refused: set[str] = set()


def install() -> None:
    """Watch for the import of torch.distributed, in this process and those that it forks; idempotent."""
    module = sys.modules.get(_TARGET)
    if module is not None:
        _prepare(module)
    elif not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def install_if(value: str) -> None:
    """Install it where DISTDBG_TORCH, in lower case and not off, says so; say where it says neither."""
    if value in ("1", "true", "yes", "on"):
        install()
    elif value not in _refused:  # Python may read the file that calls this twice
        _refused.add(value)
        sys.stderr.write(
            f"distdbg: the variable DISTDBG_TORCH has {value!r}; expected 1 or 0; nothing is watched\n"
        )


def uninstall() -> None:
    """Watch no longer; what was prepared stays."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


class Finder:
    """Finds the one module as the other finders do, and has a look at it once it was executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return None for every other module."""
        if name != _TARGET:
            return None
        uninstall()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader)
                return spec
        return None


class Loader:
    """The loader of the module, and what is done after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute it, and prepare what torch.distributed is about to import from it."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _prepare(module)


def _prepare(module: Any) -> None:
    try:
        from distdbg.torch_bridge.entry import prepare

        prepare(module)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with us, the program's import must work
        sys.stderr.write(f"distdbg: this job is not watched: {type(error).__name__}: {error}\n")
