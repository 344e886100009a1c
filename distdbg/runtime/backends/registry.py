"""Knows the backends by name and device, and makes an engine from a name.

"gloo" and "distdbg" both name our CPU engine, so programs written for torch run unchanged. "mpi" is there
where mpi4py and an MPI are (backends/mpi), "nccl" where CuPy, NCCL and a GPU are (backends/nccl), "ucc" where
libucc is (backends/ucc). xccl is a known name that is not available. A device whose backend is not available
may still be named beside one that is ("cpu:gloo,cuda:nccl"): arrays on that device then go through the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from distdbg.errors import BackendMissingError, UnknownBackendError, UsageError, WrongTypeError
from distdbg.ops.engine import Engine
from distdbg.runtime.process.debugger_seam import on_other_rules

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: Makes a backend object with torch's method names; its two forms are in register_backend.
BackendMaker = Callable[..., Any]

#: The colour of a rank that is in no part of a group that is split.
NO_COLOR = -1

#: The names of our own engine.
OWN = ("gloo", "distdbg")


@dataclass
class DistributedBackendOptions:
    """What a maker registered with extended_api=True gets as its first argument."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int] = field(default_factory=list)
    enable_reconfigure: bool = False


@dataclass(frozen=True)
class BackendPlugin:
    """A registered backend."""

    creator_fn: BackendMaker
    extended_api: bool


class Backend(str):
    """The name of a backend, in lower case; also the register of those made by others."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"
    DISTDBG = "distdbg"

    backend_list: ClassVar[list[str]] = [
        UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE, DISTDBG,
    ]  # fmt: skip
    default_device_backend_map: ClassVar[dict[str, str]] = {
        "cpu": GLOO,
        "cuda": NCCL,
        "xpu": XCCL,
        "mps": GLOO,
    }
    backend_capability: ClassVar[dict[str, list[str]]] = {
        GLOO: ["cpu", "cuda"],
        DISTDBG: ["cpu"],
        NCCL: ["cuda"],
        XCCL: ["xpu"],
        UCC: ["cpu", "cuda"],
        MPI: ["cpu", "cuda"],
        FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }
    backend_type_map: ClassVar[dict[str, str]] = {name: name for name in backend_list}
    #: Backends registered by others.
    plugins: ClassVar[dict[str, BackendPlugin]] = {}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise WrongTypeError(
                f"the name of a backend is a str, not {type(name).__name__}: {name!r}"
            )
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: BackendMaker,
        extended_api: bool = False,
        devices: str | list[str] | None = None,
    ) -> None:
        """Make `name` a backend.

        func(store, rank, size, timeout), or func(dist_opts, pg_options) with extended_api, returns
        an object with torch's methods (allreduce, broadcast, ...) or an Engine (run, submit, ...).
        """
        lowered = name.lower()
        if lowered in cls.plugins or lowered in OWN:
            raise UsageError(f"backend {lowered!r} is already registered")
        names = [devices] if isinstance(devices, str) else devices
        for device in names or ():
            if device not in ("cpu", "cuda"):
                cls.default_device_backend_map[device] = lowered
        if lowered not in cls.backend_list:
            cls.backend_list.append(lowered)
        setattr(cls, name.upper(), lowered)
        cls.backend_capability[lowered] = list(names or ("cpu", "cuda"))
        cls.backend_type_map[lowered] = "custom"
        cls.plugins[lowered] = BackendPlugin(func, extended_api)

    @classmethod
    def unregister_backend(cls, name: str) -> None:
        """Forget a registered backend (torch has no such thing; tests need it)."""
        lowered = name.lower()
        del cls.plugins[lowered]
        cls.backend_list.remove(lowered)
        del cls.backend_capability[lowered]
        del cls.backend_type_map[lowered]
        delattr(cls, lowered.upper())
        for device, backend in list(cls.default_device_backend_map.items()):
            if backend == lowered:
                del cls.default_device_backend_map[device]


class BackendConfig:
    """The backend of each device, read from 'gloo' or 'cpu:gloo,cuda:nccl'."""

    def __init__(self, backend: Backend | str) -> None:
        self.device_backend_map: dict[str, Backend] = {}
        text = str(backend).lower()
        if text in ("", Backend.UNDEFINED):
            self.device_backend_map = {"cpu": Backend("gloo"), "cuda": Backend("gloo")}
        elif ":" not in text:
            devices = Backend.backend_capability.get(text, ["cpu"])
            self.device_backend_map = {device: Backend(text) for device in devices}
        else:
            for pair in text.split(","):
                device, colon, name = pair.strip().partition(":")
                if not colon or not device or not name or ":" in name:
                    raise UsageError(
                        f"backend {text!r}: {pair!r} is not device:backend",
                        hint="write for example 'cpu:gloo,cuda:nccl'",
                    )
                if device in self.device_backend_map:
                    raise UsageError(f"backend {text!r} names device {device!r} twice")
                self.device_backend_map[device] = Backend(name)

    def get_device_backend_map(self) -> dict[str, Backend]:
        """Return the backend of each device."""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    __str__ = __repr__


def is_backend_available(backend: str) -> bool:
    """Return whether groups can be made with this backend (or all of 'cpu:a,cuda:b')."""
    names = BackendConfig(Backend(backend)).device_backend_map.values()
    return all(_is_here(name) for name in names)


def is_gloo_available() -> bool:
    """Return True: 'gloo' names our CPU engine."""
    return True


def is_nccl_available() -> bool:
    """Return whether NCCL groups can be made."""
    return is_backend_available(Backend.NCCL)


def is_mpi_available() -> bool:
    """Return whether mpi4py and an MPI library are here; neither is started."""
    return is_backend_available(Backend.MPI)


def is_ucc_available() -> bool:
    """Return whether libucc is here; it is not started."""
    return is_backend_available(Backend.UCC)


def is_xccl_available() -> bool:
    """Return whether XCCL groups can be made."""
    return is_backend_available(Backend.XCCL)


def get_default_backend_for_device(device: object) -> str:
    """Return the backend used for 'cpu', 'cuda:0' or a torch.device when none is named."""
    name = str(getattr(device, "type", device)).partition(":")[0]
    try:
        return Backend.default_device_backend_map[name]
    except KeyError:
        raise UsageError(
            f"there is no default backend for device {name!r}; "
            f"known: {', '.join(Backend.default_device_backend_map)}"
        ) from None


def check_available(config: BackendConfig) -> None:
    """Raise when no device of the config has a backend that groups can be made with."""
    names = set(config.device_backend_map.values())
    unknown = sorted(names.difference(Backend.backend_list))
    if unknown:
        raise UnknownBackendError(
            f"unknown backend {unknown[0]!r}; available: {', '.join(_available())}",
            hint="Backend.register_backend adds one",
        )
    if not any(_is_here(name) for name in names):
        if names == {Backend.MPI}:
            raise _no_mpi()
        if names == {Backend.NCCL}:
            raise _no_nccl()
        if names == {Backend.UCC}:
            raise _no_ucc()
        whys = {name: _why_not_here(name) for name in sorted(names)}
        raise BackendMissingError(
            f"backend {min(names)!r} is not available here; available: {', '.join(_available())}",
            details=[f"{name}: {why}" for name, why in whys.items() if why is not None],
            hint="use backend='gloo', which moves arrays in host memory",
        )
    if not config.device_backend_map.keys() & {"cpu", "cuda"} and names <= set(OWN):
        raise BackendMissingError(
            f"backend '{config}' serves arrays neither in host memory nor on a GPU: there are no others",
            hint="use backend='gloo', which moves arrays in host memory",
        )


def host_backend(config: BackendConfig) -> str:
    """Return the backend that carries out ops on host arrays: cpu's, or the first that is here."""
    devices = config.device_backend_map
    return next(
        name
        for name in (devices.get("cpu"), *devices.values())
        if name is not None and _is_here(name)
    )


def is_over_mpi(config: BackendConfig) -> bool:
    """Return whether ops on host arrays go over our MPI backend, not one registered as 'mpi'."""
    name = host_backend(config)
    return name == Backend.MPI and name not in Backend.plugins


def is_over_nccl(config: BackendConfig) -> bool:
    """Whether ops on GPU arrays go over our NCCL backend, not one registered as 'nccl'."""
    return _names_our_nccl(config) and _is_here(Backend.NCCL)


def _names_our_nccl(config: BackendConfig) -> bool:
    name = config.device_backend_map.get("cuda")
    return name == Backend.NCCL and name not in Backend.plugins


def make_engine(
    config: BackendConfig, group: ProcessGroup, store: Store, pg_options: object
) -> Engine:
    """Make what carries out the ops of a new group.

    That is the backend of host memory; with NCCL beside it, each for its device.
    """
    if _names_our_nccl(config) and group.size() > 1:
        from distdbg.runtime.backends.nccl.alike import compare

        compare(group, store, _why_no_nccl())
    if not is_over_nccl(config):
        return _make_host(host_backend(config), group, store, pg_options, group.record_number)
    from distdbg.runtime.backends.nccl.beside_host import make_both

    name = config.device_backend_map.get("cpu")
    host = name if name is not None and _is_here(name) else Backend.GLOO
    return make_both(
        lambda number: _make_host(host, group, store, pg_options, number),
        group,
        store,
        pg_options,
        is_for_gpus_alone="cpu" not in config.device_backend_map,
    )


def split_device(
    parent: ProcessGroup,
    function: str,
    parts: Sequence[Sequence[int]],
    backend: str | None,
    device_id: object,
) -> object:
    """Split what the parent has on a device; all its ranks call it. None: the new group makes its own.

    `parts`: the parent's group ranks of each part, in order; a rank may be in none. MismatchError on all
    ranks where they call it differently.
    """
    if parent.bound_device_id is None or not is_over_nccl(BackendConfig(parent.backend_config)):
        return None  # on all ranks alike
    from distdbg.runtime.backends.nccl.split_alike import SplitRequest
    from distdbg.runtime.backends.nccl.splitting import split_communicator

    chosen = BackendConfig(Backend(backend)) if backend else BackendConfig(parent.backend_config)
    # With a device of the program's own choice the new group is perhaps not on the parent's.
    is_wanted = device_id is None and is_over_nccl(chosen)
    wish = SplitRequest(function, parts, str(backend or ""), device_id is not None)
    color, key = next(
        (
            (color, part.index(me))
            for color, part in enumerate(parts)
            if (me := parent.rank()) in part
        ),
        (NO_COLOR, -1),
    )
    return split_communicator(parent, wish, is_wanted, color, key)


def _make_host(
    name: str, group: ProcessGroup, store: Store, pg_options: object, record_number: int
) -> Engine:
    plugin = Backend.plugins.get(name)
    if plugin is None and name == Backend.UCC and group.size() > 1:
        from distdbg.runtime.backends.checked.wrapping import put_beside
        from distdbg.runtime.backends.ucc.engine import make_engine as make_ucc_engine

        return put_beside(partial(make_ucc_engine, group, store), group, store)
    if plugin is None and name == Backend.MPI:
        from distdbg.runtime.backends.checked.wrapping import put_beside
        from distdbg.runtime.backends.mpi.engine import make_engine as make_mpi_engine

        return put_beside(partial(make_mpi_engine, group, store), group, store)
    if plugin is None:
        from distdbg.runtime.backends.cpu import CpuEngine
        from distdbg.runtime.backends.gpu.beside_host import OnGpu
        from distdbg.runtime.backends.gpu.capabilities import announce
        from distdbg.runtime.members.absent import doing, where_is
        from distdbg.runtime.members.out_of_batches import tell_out_of_batches

        announce(store, group.rank(), group.size())
        engine = CpuEngine(
            store,
            group.rank(),
            group.size(),
            group.timeout_s,
            group.label,
            group.ranks,
            group.world.ranks_here,
            group.members,
            group.world.recorder,
            record_number,
            lambda rank: where_is(group, rank),
            group.world.control,
            group.world.native_control,
            partial(on_other_rules, group),
            doing=partial(doing, group),
            tell_more=partial(tell_out_of_batches, group),
        )
        engine.on_gpu = OnGpu(group, store, engine.group, is_one_host=engine.is_one_host)
        return engine
    from distdbg.runtime.backends.checked.wrapping import put_beside

    return put_beside(partial(_make_foreign, plugin, group, store, pg_options), group, store)


def _make_foreign(
    plugin: BackendPlugin, group: ProcessGroup, store: Store, pg_options: object
) -> Engine:
    from distdbg.runtime.backends.foreign import ForeignEngine
    from distdbg.runtime.backends.torch_backends import store_for_maker

    timeout = timedelta(seconds=group.timeout_s)
    store = store_for_maker(store, timeout)
    if plugin.extended_api:
        made = plugin.creator_fn(
            DistributedBackendOptions(
                store, group.rank(), group.size(), timeout, group.group_name, group.ranks
            ),
            pg_options,
        )
    else:
        made = plugin.creator_fn(store, group.rank(), group.size(), timeout)
    if hasattr(made, "submit") and hasattr(made, "run"):
        engine: Engine = made
        return engine
    return ForeignEngine(made, group.rank(), group.size(), group.timeout_s, group.world.control)


def _is_here(name: str) -> bool:
    if name in OWN or name in Backend.plugins:
        return True
    return name in (Backend.NCCL, Backend.UCC, Backend.MPI) and _why_not_here(name) is None


def _why_not_here(name: str) -> str | None:
    """Why one of those that need a library is not here; None where it is, or nothing is known of it."""
    whys = {Backend.NCCL: _why_no_nccl, Backend.MPI: _why_no_mpi, Backend.UCC: _why_no_ucc}
    why = whys.get(name)
    return None if why is None else why()


def _why_no_mpi() -> str | None:
    from distdbg.runtime.backends.mpi.available import why_not

    return why_not()


def _no_mpi() -> BackendMissingError:
    from distdbg.runtime.backends.mpi.available import what_helps

    return BackendMissingError(
        f"backend 'mpi' is not available here: {_why_no_mpi()}; available: {', '.join(_available())}",
        hint=what_helps(),
    )


def _why_no_nccl() -> str | None:
    from distdbg.runtime.backends.nccl.library import why_not

    return why_not()


def _no_nccl() -> BackendMissingError:
    from distdbg.runtime.backends.nccl.library import what_helps

    available = [name for name in _available() if name != Backend.NCCL]
    reason = _why_no_nccl()
    return BackendMissingError(
        f"backend 'nccl' is not available here: {reason}; available: {', '.join(available)}",
        hint=f"{what_helps(reason)}; without a GPU use backend='gloo', which moves arrays in host memory",
    )


def _why_no_ucc() -> str | None:
    from distdbg.runtime.backends.ucc.library import why_not

    return why_not()


def _no_ucc() -> BackendMissingError:
    from distdbg.runtime.backends.ucc.library import INSTALL

    return BackendMissingError(
        f"backend 'ucc' is not available here: {_why_no_ucc()}; available: {', '.join(_available())}",
        hint=INSTALL,
    )


def _available() -> list[str]:
    """For the text of an error: for that CUDA is not started, which a process that forks could not undo."""
    from distdbg.runtime.backends.nccl.library import is_installed

    optional: list[str] = []
    if Backend.MPI not in Backend.plugins and _is_here(Backend.MPI):
        optional.append(Backend.MPI)
    if Backend.NCCL not in Backend.plugins and is_installed():
        optional.append(Backend.NCCL)
    if Backend.UCC not in Backend.plugins and _is_here(Backend.UCC):
        optional.append(Backend.UCC)
    return [*OWN, *optional, *Backend.plugins]
