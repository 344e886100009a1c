"""DistributedDataParallel beside torch's own over gloo: the same bits, and names where ranks differ."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.runtime.parallel.reducer.buckets import assign
from distdbg.runtime.parallel.reducer.parameters import Parameter

torch = pytest.importorskip("torch")

import ddp_training  # noqa: E402 - it imports torch
from warm_ranks import run_warm_ranks  # noqa: E402

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.timeout(600)]


def run(
    warm_python: WarmPython, folder: Path, function: Any, ranks: int, **arguments: Any
) -> list[Any]:
    env = {
        "TORCH_FILE": os.fspath(folder / "torch-store"),
        "DISTDBG_RUN_DIR": os.fspath(folder / "run"),
        "OMP_NUM_THREADS": "1",
    }
    return run_warm_ranks(warm_python, folder, function, ranks, env=env, **arguments)


@pytest.fixture(scope="module")
def two(warm_python: WarmPython, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What 2 ranks computed: with two, every order of adding up is the same one."""
    return run(warm_python, tmp_path_factory.mktemp("two"), ddp_training.compare, 2, steps=5)


@pytest.mark.parametrize("name", ddp_training.OPTIONS)
def test_training_gives_the_bits_that_torch_gives(name: str, two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert of_rank[f"ours {name}"] == of_rank[f"torch {name}"]
    assert len({of_rank[f"ours {name}"]["parameters"] for of_rank in two}) == 1


@pytest.mark.parametrize("name", ddp_training.BRANCHES)
def test_gradients_of_a_branch_that_is_sometimes_unused_are_torchs(
    name: str, two: list[dict[str, Any]]
) -> None:
    for of_rank in two:
        assert of_rank[f"ours branches {name}"] == of_rank[f"torch branches {name}"]


def test_dtypes_are_mixed_as_in_torch(two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert of_rank["ours halves"] == of_rank["torch halves"]


def test_passes_that_do_not_alternate_are_reduced_as_in_torch(two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert of_rank["ours passes"] == of_rank["torch passes"]
    assert two[0]["ours passes"] == two[1]["ours passes"]


def test_a_copy_is_reduced_for_itself_as_in_torch(two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert of_rank["ours copies"] == of_rank["torch copies"]
        assert len({str(found) for found in of_rank["ours copies"].values()}) == 1


def test_a_layer_under_a_reentrant_checkpoint_twice_as_in_torch(two: list[dict[str, Any]]) -> None:
    for of_rank in two:
        assert of_rank["ours twice"] == of_rank["torch twice"]


#: Facts of the machine and of torch's own backends; times.
NOT_COMPARED = {
    "cuda_visible_devices", "gloo_device_transport", "gloo_socket_ifname", "gloo_num_threads",
    "master_addr", "master_port", "torch_distributed_debug", "static_graph", "backend_name",
    "iteration", "prev_iteration_grad_ready_order_indices",
}  # fmt: skip


def test_it_says_of_itself_what_torch_says(two: list[dict[str, Any]]) -> None:
    ours, theirs = two[0]["ours facts"], two[0]["torch facts"]
    assert set(theirs) - NOT_COMPARED <= set(ours)
    for name in set(theirs) - NOT_COMPARED:
        if "time" not in name:
            assert ours[name] == theirs[name], name
    assert ours["iteration"] == 3
    assert ours["avg_backward_compute_time"] > 0
    assert ours["backward_comm_time_end"] > ours["backward_comm_time_start"] > 0


def test_four_ranks_train_as_under_torch(warm_python: WarmPython, tmp_path: Path) -> None:
    for of_rank in run(warm_python, tmp_path, ddp_training.compare, 4, steps=4):
        ours, theirs = of_rank["ours default"], of_rank["torch default"]
        for mine, other in zip(ours["losses"], theirs["losses"], strict=True):
            assert float.fromhex(mine) == pytest.approx(float.fromhex(other), rel=1e-5)
        # Added up in another order: last bits, which training carries on.
        pairs = zip(ours["values"], theirs["values"], strict=True)
        assert max(abs(mine - other) for mine, other in pairs) < 1e-4


def test_hooks_errors_and_the_join_protocol(warm_python: WarmPython, tmp_path: Path) -> None:
    found = run(warm_python, tmp_path, ddp_training.use_it, 3)
    for rank, of_rank in enumerate(found):
        *averaged, noop, builtin, own = of_rank["hooks"]
        assert averaged == pytest.approx([2.0] * len(averaged), rel=0.02)
        assert noop == rank + 1
        assert (builtin, own) == pytest.approx((2.0, 3.0), rel=1e-3)
        said = of_rank["errors"]
        assert said["width"].startswith(
            "MismatchError: DDP on group 'world': models differ: weight: float32[4,4] on ranks 0,2, "
            "float32[5,4] on rank 1"
        )
        differ = "MismatchError: DDP on group 'world': models differ: "
        assert said["frozen"].startswith(f"{differ}extra: float32[2] without gradient on ranks 0,2")
        assert said["buffer"].startswith(f"{differ}kept: buffer float32[2] on ranks 0,2, buffer")
        assert said["requires"].startswith(
            f"{differ}bias: float32[2] on ranks 0,2, float32[2] without"
        )
        assert said["hooks"].startswith(f"{differ}option comm hook: ")
        assert "the gradient of .weight is sparse" in said["sparse"]
        assert "no parameter with a gradient" in said["nothing"]
        assert "mixed_precision is not supported here" in said["mixed"]
        assert said["group"].startswith("WrongTypeError")
        assert "a hook has the parameters state and bucket" in said["hook"]
        assert said["unused"] == (
            "MismatchError: DDP step 2 on group 'world': rank 1 did not use branch.weight, "
            "branch.bias; ranks 0,2 did"
        )
        assert said["nowhere"].endswith("no rank used branch.weight, branch.bias")
        assert said["after"] == said["twice"] == said["twice more"] == ""
        assert said["again"].endswith(
            "rank 1 went backward again without going forward; not ranks 0,2"
        )
        assert said["nested"].startswith("UsageError: DDP: layer.")
        assert said["nested"].endswith(" got its gradient twice in one backward pass")
        failed, after_hook = of_rank["failing hook"]
        assert [bool(line) for line in failed] == [False, False, True, True, False]
        for line in failed[2:4]:
            reported = (
                "rank 1 gave up the pass: comm hook failing_hook.<locals>.hook: OSError: no disk"
            )
            assert line == "OSError: no disk" if rank == 1 else line.endswith(reported)
        assert after_hook == found[0]["failing hook"][1]
        for summed, expected in of_rank["turns"]:
            assert summed == pytest.approx(expected, rel=1e-5)
        assert "only over the default group it can be pickled, not over '" in said["pickle"]
        parts = of_rank["parts"]
        assert [parts.pop(name) for name in ("one by one", "and again", "both, then one")] == [
            ""
        ] * 3
        assert parts == {
            "one only": "UsageError: DDP step 3 on group 'world': no rank used heads.1.weight, heads.1.bias",
            "one only, no step": "",
            "then": "UsageError: DDP step 4 on group 'world': no rank used heads.0.weight, heads.0.bias",
            "another one on rank 1": "MismatchError: DDP step 7 on group 'world': ranks 0,2 did not use "
            "heads.0.weight, heads.0.bias; rank 1 did",
        }
        assert of_rank["plain skip"] == {
            "skipped": "MismatchError: DDP step 2 on group 'world': rank 1 skipped a backward pass that "
            "ranks 0,2 ran",
            "skipped by all": "",
            "evaluated": "",
            "used": "",
        }
        (skipped, after_it), (raised, after_that) = of_rank["skip"]
        assert skipped == (
            "MismatchError: DDP step 3 on group 'world': rank 1 skipped a backward pass, "
            "in which ranks 0,2 wait"
        )
        assert raised == (
            ""  # it has seen its own error
            if rank == 1
            else "MismatchError: DDP step 3 on group 'world': rank 1 gave up the pass: its backward "
            "pass raised an error"
        )
        assert after_it == found[0]["skip"][0][1]
        assert after_that == found[0]["skip"][1][1]
    assert found[0]["join"] == found[2]["join"] == pytest.approx([4.0] * 4)


def test_a_rank_with_fewer_batches_is_named(warm_python: WarmPython, tmp_path: Path) -> None:
    for rank, said in enumerate(run(warm_python, tmp_path, ddp_training.leave_early, 3)):
        if rank == 1:
            assert said == ""
        else:
            assert said.startswith("RankLeft: DDP step 2 on group 'world' cannot complete: rank 1 ")
            assert "needed for DDP " in said


def test_the_example_learns_digits_on_four_ranks(warm_python: WarmPython, tmp_path: Path) -> None:
    found = run(warm_python, tmp_path, ddp_training.run_example, 4)
    printed = found[0][0]
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < losses[0] / 3, printed
    share = re.search(r"^4 ranks recognise ([\d.]+)% of 1,000 digits", printed, re.MULTILINE)
    assert share is not None, printed
    assert float(share[1]) > 60
    for _, said in found:
        assert said == (
            "MismatchError: DDP step 3 on group 'world': rank 2 did not use inner.weight, "
            "inner.bias; ranks 0-1,3 did"
        )


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.sampled_from(["float16", "float32", "float64"])),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(1, 400), min_size=1, max_size=3),
)
def test_buckets_are_those_of_torch(shapes: list[tuple[int, str]], limits: list[int]) -> None:
    tensors = [torch.empty(size, dtype=getattr(torch, dtype)) for size, dtype in shapes]
    theirs, _ = torch.distributed._compute_bucket_assignment_by_size(tensors, limits)
    mine = [Parameter(str(at), dtype, (size,)) for at, (size, dtype) in enumerate(shapes)]
    ours = assign(mine, range(len(mine)), limits)
    assert sorted(map(list, ours), key=min) == theirs
