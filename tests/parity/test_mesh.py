"""Device meshes: ranks as an array, with a group for each line along each dimension."""

from __future__ import annotations

import pickle
import socket

import numpy as np
import pytest

import distdbg as dist
from distdbg.device_mesh import DeviceMesh, init_device_mesh
from tests.parity.promise import on_ranks, promise


def make(*shape: int, names: tuple[str, ...] | None = None) -> DeviceMesh:
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def grid() -> DeviceMesh:
    return make(2, 2, names=("dp", "tp"))


def members(mesh: DeviceMesh, dim: int | str | None = None) -> list[int]:
    """Who takes part in an all_reduce on a group of the mesh."""
    x = np.zeros(dist.get_world_size(), int)
    x[dist.get_rank()] = 1
    dist.all_reduce(x, group=mesh.get_group(dim))
    return [int(rank) for rank in np.flatnonzero(x)]


@promise("`init_device_mesh` puts the ranks into an array of the given shape, in ascending order")
def test_a_mesh() -> None:
    def run(rank: int) -> object:
        mesh = grid()
        shown = (mesh.ndim, mesh.shape, mesh.size(), mesh.size(0), mesh.size(mesh_dim=1))
        assert shown == (2, (2, 2), 4, 2, 2)
        assert (mesh.device_type, mesh.mesh_dim_names) == ("cpu", ("dp", "tp"))
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        return mesh.get_rank(), mesh.get_coordinate()

    assert on_ranks(run, 4) == [(0, (0, 0)), (1, (0, 1)), (2, (1, 0)), (3, (1, 1))]


@promise("Each line along a dimension is a group; `get_group` gives this rank's by number or name")
def test_groups_of_a_mesh() -> None:
    def run(rank: int) -> object:
        mesh = grid()
        assert mesh.get_all_groups() == [mesh.get_group(0), mesh.get_group("tp")]
        local = mesh.get_local_rank("dp"), mesh.get_local_rank(1)
        return members(mesh, "dp"), members(mesh, "tp"), local

    assert on_ranks(run, 4) == [
        ([0, 2], [0, 1], (0, 0)),
        ([1, 3], [0, 1], (0, 1)),
        ([0, 2], [2, 3], (1, 0)),
        ([1, 3], [2, 3], (1, 1)),
    ]


@promise("Groups of a mesh are named by their dimension", "as torch")
def test_names_of_groups() -> None:
    def run(rank: int) -> list[str]:
        without = make(2, 1)
        assert [group.label for group in without.get_all_groups()] == ["world", "mesh_1"]
        return [group.group_desc for group in make(1, 2, names=("dp", "tp")).get_all_groups()]

    assert on_ranks(run) == [["mesh_dp", "default_pg"]] * 2


@promise("A mesh is sliced by the names of dimensions; the parts have the groups of the whole")
def test_slices() -> None:
    def run(rank: int) -> object:
        mesh = make(2, 1, 2, names=("pp", "dp", "tp"))
        part = mesh["pp", "tp"]
        assert mesh["pp", "dp", "tp"] is mesh
        assert part.get_group("tp") is mesh["tp"].get_group() is mesh.get_group(2)
        assert part == mesh["pp", "tp"] != mesh
        assert repr(part) == "DeviceMesh((pp=2, tp=2), 'cpu', stride=(2, 1))"
        return part.mesh.tolist(), mesh["tp"].mesh.tolist(), mesh["pp"].get_local_rank()

    whole = [[0, 1], [2, 3]]
    assert on_ranks(run, 4) == [
        (whole, [0, 1], 0), (whole, [0, 1], 0), (whole, [2, 3], 1), (whole, [2, 3], 1)
    ]  # fmt: skip


@promise("Slices of unknown or unordered names raise `KeyError`")
def test_slices_that_are_none() -> None:
    def run(rank: int) -> None:
        mesh = make(1, 1, names=("dp", "tp"))
        for wrong, words in (
            ("ep", "no dimension 'ep'; there are dp, tp"),
            (("tp", "dp"), "not in the order of the mesh: dp, tp"),
            (("dp", "dp"), "not in the order"),
        ):
            with pytest.raises(KeyError) as caught:
                mesh[wrong]
            assert words in str(caught.value)
        with pytest.raises(TypeError):
            mesh[0]  # type: ignore[index]
        with pytest.raises(RuntimeError, match="without mesh_dim_names"):
            make(1)["dp"]

    on_ranks(run, 1)


@promise("`get_group` and `get_local_rank` need a dimension where there are several")
def test_a_dimension_is_needed() -> None:
    def run(rank: int) -> None:
        mesh = make(1, 1)
        for ask in (mesh.get_group, mesh.get_local_rank):
            with pytest.raises(RuntimeError, match="the mesh has 2 dimensions"):
                ask()
        with pytest.raises(IndexError):
            mesh.get_group(2)
        with pytest.raises(IndexError):
            mesh.size(2)
        assert make(1).get_group() is dist.group.WORLD

    on_ranks(run, 1)


@promise("`_flatten` joins dimensions into one, which the whole mesh then knows by its name")
def test_flatten() -> None:
    def run(rank: int) -> object:
        mesh = make(1, 2, 2, names=("pp", "dp", "tp"))
        joined = mesh["dp", "tp"]._flatten()
        assert mesh["dp_tp"] is joined is mesh["dp", "tp"]._flatten()
        assert joined.mesh_dim_names == ("dp_tp",)
        assert repr(joined) == "DeviceMesh((dp_tp=4), 'cpu', stride=(1,))"
        with pytest.raises(ValueError, match="has a dimension 'pp' already"):
            mesh["dp", "tp"]._flatten("pp")
        assert mesh.get_group("dp_tp") is joined.get_group() is mesh["dp"].get_group("dp_tp")
        assert mesh.get_local_rank("dp_tp") == rank
        assert dist.functional.all_reduce(np.ones(1), group=(mesh, "dp_tp")).tolist() == [4.0]
        return members(joined)

    assert on_ranks(run, 4) == [[0, 1, 2, 3]] * 4


@promise("`_unflatten` cuts a dimension into several")
def test_unflatten() -> None:
    def run(rank: int) -> object:
        mesh = make(4, names=("world",))._unflatten(0, (2, 2), ("dp", "tp"))
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        return members(mesh, "dp"), members(mesh, "tp")

    assert on_ranks(run, 4) == [
        ([0, 2], [0, 1]), ([1, 3], [0, 1]), ([0, 2], [2, 3]), ([1, 3], [2, 3])
    ]  # fmt: skip


@promise("`DeviceMesh._concatenate` joins the dimensions of parts, in any order, with their groups")
def test_concatenate() -> None:
    def run(rank: int) -> object:
        mesh = make(2, 1, 2, names=("pp", "dp", "tp"))
        count = dist.get_pg_count()
        turned = DeviceMesh._concatenate([mesh["tp"], mesh["pp"]])
        assert repr(turned) == "DeviceMesh((tp=2, pp=2), 'cpu', stride=(1, 2))"
        assert turned.get_group("pp") is mesh.get_group("pp")
        assert DeviceMesh._concatenate([mesh["pp"], mesh["tp"]]) == mesh["pp", "tp"]
        assert dist.get_pg_count() == count
        for wrong, words in (
            ([mesh["pp"], mesh["pp", "tp"]], "overlap"),
            ([mesh["pp"], make(4, names=("x",))], "parts of one mesh"),
            ([], "at least one"),
        ):
            with pytest.raises(RuntimeError, match=words):
                DeviceMesh._concatenate(wrong)
        return turned.mesh.tolist(), turned.get_coordinate()

    whole = [[0, 2], [1, 3]]
    assert on_ranks(run, 4) == [
        (whole, (0, 0)), (whole, (1, 0)), (whole, (0, 1)), (whole, (1, 1))
    ]  # fmt: skip


@promise("`TORCH_DISTRIBUTED_DEBUG=DETAIL` adds the ranks to what is printed of a mesh")
def test_a_mesh_with_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")

    def run(rank: int) -> str:
        return repr(make(1, 2, names=("dp", "tp")))

    shown = "DeviceMesh((dp=1, tp=2), 'cpu', stride=(2, 1), Mesh: [[0, 1]])"
    assert on_ranks(run) == [shown] * 2


@promise("`DeviceMesh` takes any array of ranks; a rank outside has no coordinate and no group")
def test_a_mesh_of_some_ranks() -> None:
    def run(rank: int) -> object:
        mesh = DeviceMesh("cpu", [2, 0])
        if rank == 1:
            with pytest.raises(RuntimeError, match="rank 1 is in no group"):
                mesh.get_group()
            return mesh.get_coordinate()
        return mesh.get_coordinate(), members(mesh)

    assert on_ranks(run, 3) == [((1,), [0, 2]), None, ((0,), [0, 2])]


@promise("`DeviceMesh.from_group` makes a mesh of groups that there are, without new ones")
def test_from_group() -> None:
    def run(rank: int) -> object:
        mesh = grid()
        count = dist.get_pg_count()
        row = DeviceMesh.from_group(mesh.get_group("tp"), "cpu")
        again = DeviceMesh.from_group(
            mesh.get_all_groups(), "cpu", mesh.mesh, mesh_dim_names=("x", "y")
        )
        assert again.get_group("y") is row.get_group() is mesh.get_group("tp")
        assert dist.get_pg_count() == count
        with pytest.raises(ValueError, match="give mesh as well"):
            DeviceMesh.from_group(mesh.get_all_groups(), "cpu")
        with pytest.raises(ValueError, match="is no line along dimension 0"):
            DeviceMesh.from_group(mesh.get_group("tp"), "cpu", [0, 3])
        return row.mesh.tolist()

    assert on_ranks(run, 4) == [[0, 1], [0, 1], [2, 3], [2, 3]]


@promise("Without a default group, `init_device_mesh` makes it")
def test_a_mesh_begins_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    where = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    assert make(1).get_group().size() == 1
    dist.destroy_process_group()


@promise(
    "All ranks must make the same mesh; torch hangs where they do not",
    "more",
    "a `MismatchError` on all ranks, with what each made and where",
)
def test_meshes_that_differ() -> None:
    def run(rank: int) -> None:
        for mine, words in (
            (lambda: make(2, 1) if rank else make(1, 2), "(1, 2) on 'cpu' on rank 0"),
            (lambda: make(2, names=("dp" if rank else "tp",)), "(tp=2) on 'cpu' on rank 0"),
            (lambda: DeviceMesh("cpu", [0, 1] if rank else [1, 0]), "(2,) on 'cpu' on rank 0"),
            (lambda: init_device_mesh("cuda" if rank else "cpu", (2,)), "'cuda' on rank 1"),
        ):
            with pytest.raises(dist.MismatchError) as caught:
                mine()
            assert words in caught.value.what
            assert "test_mesh.py" in caught.value.details[0]
            dist.barrier()

    on_ranks(run)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([0, 0], "rank 0 is in the mesh twice"),
        ([0, 5], "rank 5 of the mesh is not in a world of 1 ranks"),
        ([[0], [0, 0]], "rows have different lengths"),
        ([], "at least one rank"),
        ([0.5], "array of ranks, got float64"),
    ],
)
@promise("Ranks that cannot be a mesh raise `ValueError`")
def test_ranks_that_are_no_mesh(ranks: object, words: str) -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError) as caught:
            DeviceMesh("cpu", ranks)
        assert words in str(caught.value)

    on_ranks(run, 1)


@promise("A wrong shape, wrong names or a device with a number are errors before anything is sent")
def test_wrong_arguments() -> None:
    def run(rank: int) -> None:
        for arguments, words in (
            (("cpu", (2,)), "a mesh of 2 ranks (2,) is larger than the world of 1"),
            (("cpu:0", (1,)), "got 'cpu:0'"),
            (("cpu", ()), "must be positive numbers"),
            (("cpu", (1, 1), ("a",)), "1 names for 2 dimensions"),
            (("cpu", (1, 1), ("a", "a")), "has 'a' twice"),
            (("cpu", (1,), "a"), "must be a sequence of names"),
        ):
            with pytest.raises(RuntimeError) as caught:
                init_device_mesh(*arguments[:2], mesh_dim_names=(*arguments, None)[2])  # type: ignore[arg-type]
            assert words in str(caught.value)

    on_ranks(run, 1)


@promise("A mesh is a context manager, has a hash, and is pickled without its groups")
def test_a_mesh_as_a_value() -> None:
    def run(rank: int) -> None:
        mesh = make(1, 1, names=("dp", "tp"))
        with mesh as entered:
            assert entered is mesh
        copy = pickle.loads(pickle.dumps(mesh))
        assert copy == mesh
        assert hash(copy) == hash(mesh)
        assert mesh != make(1)
        with pytest.raises(RuntimeError, match="in no group"):
            copy.get_group("dp")

    on_ranks(run, 1)


@promise("`backend_override` gives a dimension another backend or options", "as torch")
def test_a_backend_for_a_dimension() -> None:
    def run(rank: int) -> None:
        for key in (0, "dp"):
            mesh = init_device_mesh(
                "cpu", (1, 1), mesh_dim_names=("dp", "tp"), backend_override={key: "gloo"}
            )
            assert mesh.get_group("dp") is not dist.group.WORLD
            assert mesh.get_group("tp") is dist.group.WORLD
        with pytest.raises(ValueError, match="twice"):
            init_device_mesh(
                "cpu", (1,), mesh_dim_names=("dp",), backend_override={0: "gloo", "dp": "gloo"}
            )

    on_ranks(run, 1)
