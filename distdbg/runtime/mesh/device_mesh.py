"""DeviceMesh: the ranks of a job as an array, and the groups along its dimensions."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from distdbg.check.arrays import differing_ranks, few, say_ranks
from distdbg.errors import MismatchError, UnknownDimError, UsageError, WrongTypeError
from distdbg.ops.sites import call_site, shorten
from distdbg.record.writing import write_error
from distdbg.runtime.api.integers import to_int, to_ints
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.mesh.groups import Override, groups_of_dims, groups_of_lines, override_of
from distdbg.runtime.mesh.layout import MeshLayout, Ranks, check_names, to_ranks
from distdbg.runtime.mesh.telling import tell_mesh
from distdbg.runtime.process.init import init_process_group, is_initialized
from distdbg.runtime.process.world import current

_entered = threading.local()


class DeviceMesh:
    """The global ranks `mesh` as an array; each line along a dimension is a group of its ranks.

    All ranks of the default group make the same one, also those that are not in it. `mesh_dim_names` name the
    dimensions, so that parts can be asked for by name: `mesh["dp"]`, `mesh["dp", "tp"]`.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Mapping[int | str, Override] | None = None,
        _init_backend: bool = True,
        _rank: int | None = None,
    ) -> None:
        check_device_type(device_type)
        default = current().require_default()
        layout = MeshLayout.whole(to_ranks(mesh, default.size()), mesh_dim_names)
        overrides = override_of(layout, backend_override or {})
        groups: list[ProcessGroup] = []
        if _init_backend:
            _check_agreement(default, f"{layout.words()} on {device_type!r}", layout.ranks)
            groups = groups_of_dims(default, layout, overrides)
        self._set(device_type, layout, default.rank() if _rank is None else _rank, groups)
        tell_mesh(self)

    def _set(
        self,
        device_type: str,
        layout: MeshLayout,
        rank: int,
        groups: Sequence[ProcessGroup],
        root: DeviceMesh | None = None,
    ) -> None:
        self.device_type = device_type
        self._layout = layout
        self._rank = rank
        self._root = root
        #: Groups of this rank, by dimension; none where it is not in the mesh.
        self._groups = list(groups)
        #: Meshes that were flattened from the whole one, by name.
        self._flattened: dict[str, DeviceMesh] = {}

    @classmethod
    def _part(cls, root: DeviceMesh, layout: MeshLayout, groups: Sequence[ProcessGroup]) -> Self:
        made = cls.__new__(cls)
        made._set(root.device_type, layout, root._rank, groups, root)
        return made

    @classmethod
    def from_group(
        cls,
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> Self:
        """Make a mesh of groups that there are already: one, or one for each dimension of `mesh`."""
        check_device_type(device_type)
        many = not isinstance(group, ProcessGroup)
        groups: list[ProcessGroup] = [group] if isinstance(group, ProcessGroup) else list(group)
        if not groups or not all(isinstance(each, ProcessGroup) for each in groups):
            raise UsageError("from_group: give a group, or one for each dimension of the mesh")
        if many and mesh is None:
            raise UsageError("from_group: give mesh as well when there are several groups")
        default = current().require_default()
        ranks = to_ranks(groups[0].ranks if mesh is None else mesh, default.size())
        if ranks.ndim != len(groups):
            raise UsageError(
                f"from_group: {len(groups)} groups for a mesh of {ranks.ndim} dimensions"
            )
        layout = MeshLayout.whole(ranks, mesh_dim_names)
        for dim, each in enumerate(groups):
            if sorted(each.ranks) not in [sorted(line) for line in layout.lines(dim)]:
                raise UsageError(
                    f"from_group: group {each.label!r} of ranks {list(each.ranks)} is no line "
                    f"along dimension {dim} of the mesh"
                )
        made = cls.__new__(cls)
        made._set(device_type, layout, default.rank(), groups)
        return made

    # ------------------------------------------------------------------------------ what it is

    @property
    def mesh(self) -> Ranks:
        """The global ranks of the part that this rank is in, as a NumPy array."""
        return self._layout.block_of(self._rank)

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of its dimensions."""
        return self._layout.names

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._layout.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks there are along each dimension."""
        return self._layout.shape

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, in all or along one dimension."""
        if mesh_dim is None:
            return int(self.mesh.size)
        return self.shape[self._layout.dim_of(to_int("size", "mesh_dim", mesh_dim))]

    def get_rank(self) -> int:
        """This rank's global number."""
        return self._rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this rank is, by dimension; None: not in the mesh."""
        return self._layout.coordinate_of(self._rank)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's number along a dimension, which may be left out where there is just one."""
        if mesh_dim is None:
            mesh_dim = self._dim("get_local_rank", None)
        return self.get_group(mesh_dim).rank()

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank along a dimension, which may be left out where there is just one."""
        flat = self._flattened_as(mesh_dim)
        if flat is not None:
            return flat.get_group()
        dim = self._dim("get_group", mesh_dim)
        if not self._groups:
            raise UsageError(f"get_group: rank {self._rank} is in no group of {self!r}")
        return self._groups[dim]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this rank, by dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _dim(self, function: str, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise UsageError(
                    f"{function}: give mesh_dim, since the mesh has {self.ndim} dimensions"
                )
            return 0
        if isinstance(mesh_dim, str):
            return self._layout.dim_of(mesh_dim)
        return self._layout.dim_of(to_int(function, "mesh_dim", mesh_dim))

    def _flattened_as(self, name: int | str | None) -> DeviceMesh | None:
        """What was flattened from the whole under this name, which is no dimension of this part."""
        if not isinstance(name, str) or name in (self.mesh_dim_names or ()):
            return None
        return self._get_root_mesh()._flattened.get(name)

    def _is_current_rank_part_of_mesh(self) -> bool:
        return self.get_coordinate() is not None

    # ------------------------------------------------------------------------------ its parts

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The part along some dimensions, given in their order: 'tp', or ('dp', 'tp')."""
        wanted = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else mesh_dim_names
        if not isinstance(wanted, tuple) or not all(isinstance(name, str) for name in wanted):
            raise WrongTypeError(f"a mesh is sliced by names of dimensions, got {mesh_dim_names!r}")
        names = self.mesh_dim_names
        if names is None:
            raise UsageError("a mesh without mesh_dim_names cannot be sliced")
        if wanted == names:
            return self
        root = self._get_root_mesh()
        flat = self._flattened_as(wanted[0]) if len(wanted) == 1 else None
        if flat is not None:
            return flat
        dims = [self._layout.dim_of(name) for name in wanted]
        if dims != sorted(set(dims)):
            raise UnknownDimError(
                f"dimensions {', '.join(wanted)} are not in the order of the mesh: "
                f"{', '.join(names)}"
            )
        groups = [self._groups[dim] for dim in dims] if self._groups else []
        return self._part(root, self._layout.keep(dims), groups)

    def _flatten(
        self, mesh_dim_name: str | None = None, backend_override: Override | None = None
    ) -> DeviceMesh:
        """All dimensions as one, with a group of its own; all ranks of the whole mesh call it."""
        root = self._get_root_mesh()
        layout = self._layout.flatten(mesh_dim_name)
        name = layout.names[0] if layout.names else ""
        if name in (root.mesh_dim_names or ()) and self.mesh_dim_names != (name,):
            raise UsageError(f"_flatten: the mesh has a dimension {name!r} already")
        if self.ndim == 1 and mesh_dim_name in (None, name) and self.mesh_dim_names == (name,):
            return self
        known = root._flattened.get(name)
        if known is not None and known == self._part(root, layout, ()):
            return known
        if known is not None:
            raise UsageError(f"_flatten: {name!r} is the name of another flattened mesh")
        default = current().require_default()
        override: dict[int | str, Override] = {}
        if backend_override is not None:
            override[0] = backend_override
        group = groups_of_lines(default, layout, 0, override_of(layout, override)[0])
        made = self._part(root, layout, [group] if group is not None else [])
        if name:
            root._flattened[name] = made
        tell_mesh(made)
        return made

    def _unflatten(
        self,
        dim: int | str,
        mesh_sizes: Sequence[int],
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Mapping[int | str, Override] | None = None,
    ) -> DeviceMesh:
        """One dimension as several, with groups of their own; all ranks of the whole mesh call it."""
        at = self._layout.dim_of(dim)
        layout = self._layout.split(at, tuple(mesh_sizes), mesh_dim_names)
        overrides = override_of(layout, backend_override or {})
        default = current().require_default()
        new = range(at, at + len(mesh_sizes))
        made = [groups_of_lines(default, layout, each, overrides[each]) for each in new]
        groups = [group for group in made if group is not None]
        if self._groups:
            groups = [*self._groups[:at], *groups, *self._groups[at + 1 :]]
        part = self._part(self._get_root_mesh(), layout, groups)
        tell_mesh(part)
        return part

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The dimensions of several parts of one mesh as one mesh, with their groups: no new one is made."""
        meshes = list(device_mesh_list)
        if not meshes:
            raise UsageError("_concatenate: give at least one mesh")
        root = meshes[0]._get_root_mesh()
        if any(mesh._get_root_mesh() != root for mesh in meshes):
            raise UsageError("_concatenate: the meshes must be parts of one mesh")
        layout = MeshLayout.joined([mesh._layout for mesh in meshes])
        groups = [group for mesh in meshes for group in mesh._groups]
        return meshes[0]._part(root, layout, groups)

    def _get_root_mesh(self) -> DeviceMesh:
        return self if self._root is None else self._root

    def _get_all_submeshes(self, mesh_dim_name: str) -> list[DeviceMesh]:
        """All lines along a dimension, each as a mesh without groups but one's own."""
        dim = self._layout.dim_of(mesh_dim_name)
        parts = []
        for line in self._layout.keep([dim]).ranks:
            layout = MeshLayout(line[None], (mesh_dim_name,), (self._layout.strides[dim],))
            groups = [self._groups[dim]] if self._groups and self._rank in line else []
            parts.append(self._part(self._get_root_mesh(), layout, groups))
        return parts

    def _get_mesh_dim_by_name(self, mesh_dim_name: str) -> int:
        return self._layout.dim_of(mesh_dim_name)

    # ------------------------------------------------------------------------------ as a value

    def __enter__(self) -> Self:
        entered(push=self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.meshes.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        layout = self._layout
        return self.device_type, layout.names, layout.shape, layout.ranks.tobytes()

    def __getstate__(self) -> dict[str, Any]:
        """Groups stay where they are: a copy in another process has none."""
        return {"device_type": self.device_type, "layout": self._layout, "rank": self._rank}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._set(state["device_type"], state["layout"], state["rank"], ())

    def __repr__(self) -> str:
        layout = self._layout
        # As torch does: its own variable alone, since the level here is DETAIL unless somebody chose another.
        is_detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") == "DETAIL"
        ranks = f", Mesh: {self.mesh.tolist()}" if is_detail else ""
        return f"DeviceMesh({layout.words()}, {self.device_type!r}, stride={layout.strides}{ranks})"


def entered(push: DeviceMesh | None = None) -> DeviceMesh | None:
    """The mesh of the innermost `with` of this thread; `push`: one more."""
    meshes: list[DeviceMesh] | None = getattr(_entered, "meshes", None)
    if meshes is None:
        meshes = _entered.meshes = []
    if push is not None:
        meshes.append(push)
    return meshes[-1] if meshes else None


def check_device_type(device_type: object) -> None:
    """UsageError for 'cuda:0', and for what is no name."""
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise UsageError(
            f"device_type is the name of a kind of device, got {device_type!r}",
            hint="give 'cuda', not 'cuda:0': each rank has its own",
        )


def _check_agreement(default: ProcessGroup, words: str, ranks: Ranks) -> None:
    """A collective: MismatchError on all ranks unless all have given the same."""
    if default.size() == 1:
        return
    digest = blake2b(ranks.tobytes(), digest_size=8).hexdigest()
    everybody: list[Any] = list(default.ranks)  # as many
    all_gather_object(everybody, (words, digest, call_site()), group=default)
    if all(each[:2] == everybody[0][:2] for each in everybody):
        return
    error = _explain(default, everybody)
    if default.world.recorder is not None:
        write_error(default.world.recorder, default.record_number, 0, error)
    raise error


def _explain(default: ProcessGroup, everybody: Sequence[tuple[str, str, str]]) -> MismatchError:
    sides: dict[tuple[str, str], list[int]] = {}
    places: dict[str, list[int]] = {}
    short = shorten({site for _, _, site in everybody})
    for rank, (words, digest, site) in zip(default.ranks, everybody, strict=True):
        sides.setdefault((words, digest), []).append(rank)
        places.setdefault(short[site], []).append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    is_order = len({words for words, _ in sides}) < len(sides)
    texts = [f"{words} on {say_ranks(ranks)}" for (words, _), ranks in ordered]
    details = few([f"{say_ranks(ranks)} made it at {site}" for site, ranks in places.items()])
    if is_order:
        details.append("meshes of one shape have their ranks in different orders")
    odd = differing_ranks([(words, digest) for words, digest, _ in everybody], list(default.ranks))
    return MismatchError(
        f"device mesh differs between ranks: {', '.join(few(texts))}",
        kind="init_device_mesh",
        group=default.label,
        ranks=odd,
        details=[*details, "no group was made"],
        hint="all ranks must give the same mesh_shape, mesh_dim_names and device_type",
    )


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[int | str, Override] | None = None,
) -> DeviceMesh:
    """Make a mesh of the ranks 0, 1, 2 ... in this shape; all ranks call it with the same arguments.

    Without a default group, init_process_group() is called first.
    """
    check_device_type(device_type)
    shape = tuple(to_ints("init_device_mesh", "mesh_shape", mesh_shape))
    if not shape or min(shape) < 1:
        raise UsageError(f"init_device_mesh: mesh_shape must be positive numbers, got {shape}")
    if mesh_dim_names is not None:
        check_names(mesh_dim_names, len(shape))
    if not is_initialized():
        init_process_group()
    count, size = math.prod(shape), current().require_default().size()
    if count > size:
        raise UsageError(
            f"init_device_mesh: a mesh of {count} ranks {shape} is larger than the world of {size}"
        )
    return DeviceMesh(
        device_type,
        np.arange(count).reshape(shape),
        mesh_dim_names=mesh_dim_names,
        backend_override=backend_override,
    )
