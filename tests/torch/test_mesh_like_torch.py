"""Meshes look as torch's: shapes, ranks, coordinates, slices and what is printed of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distdbg.device_mesh import DeviceMesh
from distdbg.runtime.mesh.layout import MeshLayout, to_ranks

theirs = pytest.importorskip("torch.distributed")

import mesh_differential  # noqa: E402 - it imports torch
from warm_ranks import run_warm_ranks  # noqa: E402

if TYPE_CHECKING:
    from warm_python import WarmPython

WORLD = 24
SHAPES: list[dict[str, int]] = [
    {"dp": 24}, {"dp": 1}, {"dp": 4, "tp": 6}, {"dp": 1, "tp": 6}, {"pp": 2, "dp": 3, "tp": 4},
    {"pp": 2, "dp": 1, "cp": 3, "tp": 4},
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    theirs.init_process_group("fake", store=FakeStore(), rank=7, world_size=WORLD)
    yield
    theirs.destroy_process_group()


def ours(shape: dict[str, int]) -> DeviceMesh:
    """Without groups: the world of these meshes is torch's."""
    import math

    import numpy as np

    ranks = to_ranks(np.arange(math.prod(shape.values())).reshape(*shape.values()), WORLD)
    made = DeviceMesh.__new__(DeviceMesh)
    made._set("cpu", MeshLayout.whole(ranks, tuple(shape)), 7, ())
    return made


def shown(mesh: Any) -> dict[str, object]:
    text = repr(mesh)
    if 1 in tuple(mesh.shape):  # how far apart one rank is from itself has no meaning
        text = text.partition(", stride=")[0]
    return {
        "repr": text,
        "ndim": mesh.ndim,
        "shape": tuple(mesh.shape),
        "size": mesh.size(),
        "sizes": [mesh.size(dim) for dim in range(mesh.ndim)],
        "names": mesh.mesh_dim_names,
        "ranks": mesh.mesh.tolist(),
        "at": None if mesh.get_coordinate() is None else tuple(mesh.get_coordinate()),
        "rank": mesh.get_rank(),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_mesh_and_its_slices_are_those_of_torch(shape: dict[str, int]) -> None:
    from itertools import combinations

    from torch.distributed.device_mesh import init_device_mesh

    their_mesh = init_device_mesh("cpu", tuple(shape.values()), mesh_dim_names=tuple(shape))
    our_mesh = ours(shape)
    assert shown(our_mesh) == shown(their_mesh)
    if 7 not in our_mesh.mesh:
        return
    for count in range(1, len(shape) + 1):
        for names in combinations(shape, count):
            assert shown(our_mesh[names]) == shown(their_mesh[names])
            if len(names) > 1:
                layout = our_mesh[names]._layout.flatten(None)
                joined = DeviceMesh._part(our_mesh, layout, ())
                expected = shown(their_mesh[names]._flatten())
                if isinstance(layout.strides[0], tuple):  # torch nests what it prints of these
                    expected["repr"] = repr(joined)
                assert shown(joined) == expected


def test_concatenated_parts_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.device_mesh import DeviceMesh as Theirs
    from torch.distributed.device_mesh import init_device_mesh

    shape = {"pp": 2, "dp": 3, "tp": 4}
    their_mesh = init_device_mesh("cpu", tuple(shape.values()), mesh_dim_names=tuple(shape))
    our_mesh = ours(shape)
    for parts in ((("pp",), ("tp",)), (("tp",), ("pp",)), (("dp", "tp"), ("pp",))):
        their_part = Theirs._concatenate([their_mesh[names] for names in parts])
        assert shown(DeviceMesh._concatenate([our_mesh[names] for names in parts])) == shown(
            their_part
        )
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert repr(our_mesh) == repr(their_mesh)
    assert repr(our_mesh["dp"]) == repr(their_mesh["dp"])


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (1, 6), (6,)])
def test_a_split_dimension_is_that_of_torch(sizes: tuple[int, ...]) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    names = ("a", "b", "c")[: len(sizes)]
    their_mesh = init_device_mesh("cpu", (4, 6), mesh_dim_names=("dp", "tp"))
    layout = ours({"dp": 4, "tp": 6})._layout.split(1, sizes, names)
    joined = DeviceMesh._part(ours({"dp": 4, "tp": 6}), layout, ())
    assert shown(joined) == shown(their_mesh._unflatten(1, sizes, names))


#: Where ours is another answer, and why.
DIFFERS: dict[str, str] = {
    "flat part again": "one object, where torch makes another one over the same group",
    "unnamed flat": "a mesh of one dimension, which torch refuses",
}


def is_alike(ours: Any, expected: Any) -> bool:
    """Of an error: ours are of several classes of Python, of which torch's must be one."""
    if isinstance(ours, dict) and isinstance(expected, dict) and "raises" in ours:
        return bool(set(ours["raises"]) & set(expected.get("raises", ())))
    return bool(ours == expected)


def test_meshes_of_four_ranks_are_those_of_torch_over_gloo(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    env = {
        "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
        "OMP_NUM_THREADS": "1",
    }
    for found in run_warm_ranks(warm_python, tmp_path, mesh_differential.compare, 4, env=env):
        ours, expected = found["ours"], found["torch"]
        differ = {
            name: (ours.get(name), expected[name])
            for name in expected
            if not is_alike(ours.get(name), expected[name])
        }
        assert set(ours) == set(expected)
        wrong = [f"{name}: {pair}" for name, pair in differ.items() if name not in DIFFERS]
        assert not wrong, "\n".join(wrong)
        assert set(DIFFERS) <= set(differ)
