"""Which kind of rendezvous --rdzv-backend means; users may register their own.

A kind is a function from the options of the run to a Rendezvous. It has a name when somebody
registered it in this process; --rdzv-backend package.module:function needs no registration, which
is how a user of the command brings one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from distdbg.errors import ConfigError, UsageError
from distdbg.launch.options import RunOptions
from distdbg.launch.rendezvous.round import Rendezvous

Make = Callable[[RunOptions], Rendezvous]


def make_rendezvous(options: RunOptions) -> Rendezvous:
    """Make what --rdzv-backend asks for. Nothing is opened before its first `next_round`."""
    name = options.rdzv_backend.strip()
    if options.standalone:
        return _makers["c10d"](options)
    if make := _makers.get(name.lower()):
        return make(options)
    if ":" in name:
        return _find(name)(options)
    raise UsageError(
        f"there is no rendezvous backend {name!r}",
        details=[f"known: {', '.join(sorted(set(_makers) - _UNSUPPORTED))}"],
        hint="--rdzv-backend package.module:function brings your own",
    )


def register_rendezvous_handler(name: str, make: Make) -> None:
    """Have `make(options)` serve --rdzv-backend `name` of launchers in this process.

    `distdbg.register_rendezvous_handler` is another thing: it serves URLs by which ranks meet.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise UsageError(f"a rendezvous backend cannot be called {name!r}")
    if name.lower() in _makers and name.lower() not in _UNSUPPORTED:
        raise UsageError(f"there is a rendezvous backend {name!r} already")
    _makers[name.lower()] = make


def _find(name: str) -> Make:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"the rendezvous backend {name!r} cannot be loaded: {error}",
            hint="name a module that can be imported, and a function in it that takes the options",
        ) from error
    if not callable(found):
        raise ConfigError(f"the rendezvous backend {name!r} is not a function")
    return cast(Make, found)


def _make_static(options: RunOptions) -> Rendezvous:
    from distdbg.launch.rendezvous.static import make_static

    return make_static(options)


def _make_c10d(options: RunOptions) -> Rendezvous:
    from distdbg.launch.rendezvous.c10d import make_c10d

    return make_c10d(options)


def _refuse_etcd(options: RunOptions) -> Rendezvous:
    raise UsageError(
        f"--rdzv-backend {options.rdzv_backend} is not supported: it needs a server of its own",
        hint="use --rdzv-backend c10d --rdzv-endpoint HOST:PORT, where one of the launchers serves; "
        "or bring yours as --rdzv-backend package.module:function",
    )


_UNSUPPORTED = {"etcd", "etcd-v2"}
_makers: dict[str, Make] = {
    "static": _make_static,
    "c10d": _make_c10d,
    "etcd": _refuse_etcd,
    "etcd-v2": _refuse_etcd,
}
