"""What the ranks of test_mesh_like_torch.py do: the same with meshes of torch over gloo and with ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as torch_dist
from torch.distributed import device_mesh as torch_mesh

import distdbg as dist
from distdbg import device_mesh as our_mesh

#: Shapes by the names of their dimensions; 4 ranks.
SHAPES: list[dict[str, int]] = [
    {"dp": 4},
    {"dp": 2, "tp": 2},
    {"dp": 1, "tp": 4},
    {"pp": 2, "dp": 1, "tp": 2},
    {"pp": 1, "dp": 2, "tp": 2},
]


def compare() -> dict[str, dict[str, Any]]:
    """By library, what every question about every mesh is answered by."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch_dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['TORCH_FILE']}", rank=rank, world_size=size
    )
    dist.init_process_group()
    found = {
        "torch": Asked(torch_dist, torch_mesh).answers(),
        "ours": Asked(dist, our_mesh).answers(),
    }
    dist.destroy_process_group()
    torch_dist.destroy_process_group()
    return found


class Asked:
    """One library."""

    def __init__(self, library: Any, meshes: Any) -> None:
        self.library = library
        self.meshes = meshes
        self.found: dict[str, Any] = {}

    def make(self, shape: dict[str, int], is_named: bool = True) -> Any:
        names = {"mesh_dim_names": tuple(shape)} if is_named else {}
        return self.meshes.init_device_mesh("cpu", tuple(shape.values()), **names)

    def ask(self, what: str, function: Callable[[], Any]) -> Any:
        """Note the answer, or what is raised; returns it where there is one."""
        try:
            answer = function()
        except Exception as error:  # whatever either library raises is its answer
            kinds = [KeyError, IndexError, TypeError, ValueError, RuntimeError, AssertionError]
            self.found[what] = {"raises": [k.__name__ for k in kinds if isinstance(error, k)]}
            return None
        self.found[what] = self.plain(answer)
        return answer

    def plain(self, answer: Any) -> Any:
        """A mesh or a group by what it is."""
        if isinstance(answer, self.meshes.DeviceMesh):
            return self.of_mesh(answer)
        if isinstance(answer, self.library.ProcessGroup):
            return self.library.get_process_group_ranks(answer)
        if isinstance(answer, (list, tuple)):
            return [self.plain(one) for one in answer]
        return answer

    def of_mesh(self, mesh: Any) -> dict[str, Any]:
        text = repr(mesh)
        if 1 in tuple(mesh.shape):  # how far apart one rank is from itself has no meaning
            text = text.partition(", stride=")[0]
        at = mesh.get_coordinate()
        return {
            "repr": text,
            "ndim": mesh.ndim,
            "shape": list(mesh.shape),
            "sizes": [mesh.size(), *(mesh.size(dim) for dim in range(mesh.ndim))],
            "names": mesh.mesh_dim_names,
            "device": mesh.device_type,
            "ranks": mesh.mesh.tolist(),
            "at": None if at is None else list(at),
            "rank": mesh.get_rank(),
        }

    def add_up(self, group: Any) -> float:
        x = torch.tensor([10.0 ** self.library.get_rank()])
        self.library.all_reduce(x, group=group)
        return x.item()

    def answers(self) -> dict[str, Any]:
        for shape in SHAPES:
            self.whole(shape)
        self.flattened()
        self.of_groups()
        self.without_names()
        self.some_ranks()
        self.mistakes()
        return self.found

    def whole(self, shape: dict[str, int]) -> None:
        mesh = self.make(shape)
        ask, say = self.ask, f"{shape} "
        ask(say, lambda: mesh)
        ask(say + "all groups", mesh.get_all_groups)
        for dim, name in enumerate(shape):
            ask(f"{say}group {name}", lambda name=name: mesh.get_group(name))
            ask(f"{say}group {dim}", lambda dim=dim: mesh.get_group(dim))
            ask(f"{say}description {name}", lambda dim=dim: mesh.get_group(dim).group_desc)
            ask(f"{say}local rank {name}", lambda name=name: mesh.get_local_rank(name))
            ask(f"{say}local rank {dim}", lambda dim=dim: mesh.get_local_rank(dim))
            ask(f"{say}sum {name}", lambda dim=dim: self.add_up(mesh.get_group(dim)))
            ask(f"{say}slice {name}", lambda name=name: mesh[name])
            ask(f"{say}rank in slice {name}", lambda name=name: mesh[name].get_local_rank())
            ask(f"{say}slice of slice {name}", lambda name=name: mesh[name][name])
            ask(f"{say}is its slice {name}", lambda name=name: mesh == mesh[name])
        for first in shape:
            for second in shape:
                is_ordered = list(shape).index(first) < list(shape).index(second)
                if is_ordered or 1 not in (
                    shape[first],
                    shape[second],
                ):  # there torch takes any order
                    ask(f"{say}slice {first}, {second}", lambda pair=(first, second): mesh[pair])
        with mesh as entered:
            ask(say + "entered", lambda: entered is mesh)
        ask(say + "equal", lambda: mesh == self.make(shape))
        ask(say + "hash", lambda: hash(mesh) == hash(self.make(shape)))

    def flattened(self) -> None:
        ask = self.ask
        mesh = self.make({"pp": 2, "dp": 1, "tp": 2})
        ask("flat", mesh._flatten)
        ask("flat by name", lambda: mesh["pp_dp_tp"])
        ask("flat sum", lambda: self.add_up(mesh["pp_dp_tp"].get_group()))
        ask("flat part", lambda: mesh["dp", "tp"]._flatten("model"))
        ask("flat part again", lambda: mesh["dp", "tp"]._flatten("model") is mesh["model"])
        ask("flat part group", lambda: mesh["model"].get_group())
        ask("flat part of the whole", lambda: mesh.get_group("model"))
        ask("flat part sliced", lambda: mesh["model"]["model"])
        ask("flat apart", lambda: mesh["pp", "tp"]._flatten("ends").mesh.tolist())
        ask("flat apart sum", lambda: self.add_up(mesh["ends"].get_group()))
        ask("flat one", lambda: mesh["tp"]._flatten("alone"))
        ask("flat name of a dimension", lambda: mesh["dp", "tp"]._flatten("pp"))
        ask("flat name taken", lambda: mesh["pp", "dp"]._flatten("model"))
        ask("flat dimension outside", lambda: mesh["model"]["tp"])
        ask("cut", lambda: self.make({"all": 4})._unflatten(0, (2, 2), ("dp", "tp")))
        ask("cut wrong", lambda: self.make({"all": 4})._unflatten(0, (3, 2), ("dp", "tp")))

    def of_groups(self) -> None:
        ask, kind = self.ask, self.meshes.DeviceMesh
        mesh = self.make({"dp": 2, "tp": 2})
        row = mesh.get_group("tp")
        ask("of a group", lambda: kind.from_group(row, "cpu"))
        ask("of a named group", lambda: kind.from_group(row, "cpu", mesh_dim_names=("tp",)))
        both = mesh.get_all_groups()
        named = {"mesh": mesh.mesh, "mesh_dim_names": ("x", "y")}
        ask("of groups", lambda: kind.from_group(both, "cpu", **named))
        ask("of groups sliced", lambda: kind.from_group(both, "cpu", **named)["y"].get_group())
        ask("of groups without a mesh", lambda: kind.from_group(both, "cpu"))
        ask("of no group", lambda: kind.from_group([], "cpu", mesh=mesh.mesh))

    def without_names(self) -> None:
        ask = self.ask
        mesh = self.make({"dp": 2, "tp": 2}, is_named=False)
        ask("unnamed", lambda: mesh)
        ask("unnamed groups", mesh.get_all_groups)
        ask("unnamed sliced", lambda: mesh["dp"])
        ask("unnamed by name", lambda: mesh.get_group("dp"))
        ask("group of which dimension", mesh.get_group)
        ask("rank of which dimension", mesh.get_local_rank)
        ask("unnamed flat", mesh._flatten)

    def some_ranks(self) -> None:
        ask, kind = self.ask, self.meshes.DeviceMesh
        mesh = kind("cpu", [3, 1])
        ask("two ranks at", mesh.get_coordinate)
        if mesh.get_coordinate() is not None:
            ask("two ranks", lambda: mesh)
            ask("two ranks sum", lambda: self.add_up(mesh.get_group()))
        turned = kind("cpu", [[0, 2], [1, 3]], mesh_dim_names=("a", "b"))
        ask("turned", lambda: turned)
        ask("turned groups", turned.get_all_groups)

    def mistakes(self) -> None:
        ask, init = self.ask, self.meshes.init_device_mesh
        mesh = self.make({"dp": 2, "tp": 2})
        ask("no such name", lambda: mesh["ep"])
        ask("no such group", lambda: mesh.get_group("ep"))
        ask("no such number", lambda: mesh.get_group(5))
        ask("no such size", lambda: mesh.size(5))
        ask("names twice", lambda: init("cpu", (2, 2), mesh_dim_names=("a", "a")))
        ask("names missing", lambda: init("cpu", (2, 2), mesh_dim_names=("a",)))
        ask("a device with a number", lambda: init("cpu:0", (4,)))
