"""What a watched job's record says of DDP, FSDP2, meshes and steps; also on our own backend."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm_ranks import run_warm_ranks

from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import MismatchError
from distdbg.record.entries import MarkEntry, SpanBegin
from distdbg.record.known_marks import MESH, NO_GRADIENT, NOT_REDUCED

if TYPE_CHECKING:
    from warm_python import WarmPython

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

HERE = os.fspath(Path(__file__).parent)
Watched = Callable[..., Session]


@pytest.fixture
def watched(warm_python: WarmPython, tmp_path: Path) -> Watched:
    """Run a function on two watched ranks; what their records say."""

    def run(function: Callable[..., Any], level: str = "info", **more: Any) -> Session:
        env = {
            "PYTHONPATH": os.pathsep.join([HERE, os.path.dirname(HERE)]),
            "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
            "DISTDBG_DEBUG": level,
            "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
            "OMP_NUM_THREADS": "1",
        }
        run_warm_ranks(warm_python, tmp_path, function, 2, env=env, **more)
        return load_run(tmp_path / "run")

    return run


def begin(backend: str) -> Any:
    if backend == "gloo":
        from distdbg.torch_bridge.hook import install

        install()
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    return dist


class Net(torch.nn.Module):
    """Two branches, of which a step may use one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        self.fc1 = torch.nn.Linear(64, 8)
        self.fc2 = torch.nn.Linear(64, 8)

    def forward(self, x: Any, with_fc2: bool = True) -> Any:
        x = self.body(x)
        return self.fc1(x) + self.fc2(x) if with_fc2 else self.fc1(x)


def results(session: Session) -> list[str]:
    """What the functions returned."""
    folder = Path(session.ranks[0].source).parents[1]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def comms_of(session: Session, rank: int) -> list[str]:
    return [session.comms[comm] for comm in session.ranks[rank].ops.comm]


def marks_of(session: Session, rank: int, prefix: str) -> list[tuple[str, float | None]]:
    notes = session.ranks[rank].notes
    return [
        (note.name.removeprefix(prefix), note.value)
        for note in notes
        if isinstance(note, MarkEntry) and note.name is not None and note.name.startswith(prefix)
    ]


def train(backend: str, hook: bool = False, **options: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    dist = begin(backend)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.01, **options)
    if hook:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total = torch.zeros(64 * 64 + 64)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 64)).sum()
        dist.all_reduce(total)  # as large as a bucket, and none
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


FIRST_BUCKET = ["DDP bucket 0: body.0.weight to fc2.bias"]
LATER_BUCKETS = ["DDP bucket 0: fc2.bias to body.1.weight", "DDP bucket 1 of body.0"]


@pytest.mark.parametrize("backend", ["gloo", "distdbg"])
@pytest.mark.parametrize("hook", [False, True])
def test_the_ops_of_ddp_have_the_names_of_its_buckets(
    watched: Watched, backend: str, hook: bool
) -> None:
    session = watched(train, backend=backend, hook=hook)
    for rank in range(2):
        comms = comms_of(session, rank)
        assert "DDP compares the shapes of parameters" in comms
        assert "DDP broadcasts parameters and buffers" in comms
        assert "DDP agrees on the order of buckets" in comms
        buckets = [comm for comm in comms if comm.startswith("DDP bucket")]
        # In the first step there is one, since nobody knows the order in which gradients get ready.
        assert buckets == FIRST_BUCKET + LATER_BUCKETS * 3
        ops = session.ranks[rank].ops
        bare = [at for at, comm in enumerate(comms) if not comm and ops.kind[at] == 1]
        assert len(bare) == 4, "the all_reduces of the program have no name"


def test_phases_and_steps_are_in_the_record(watched: Watched) -> None:
    session = watched(train, backend="gloo")
    for rank in range(2):
        spans = [note.name for note in session.ranks[rank].notes if isinstance(note, SpanBegin)]
        assert spans == ["forward", "backward", "optimizer"] * 4
        assert marks_of(session, rank, "step") == [("", float(step)) for step in (1, 2, 3, 4)]


def skips_a_layer(backend: str) -> str:
    from torch.nn.parallel import DistributedDataParallel

    dist = begin(backend)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for step in range(1, 5):
            optimizer.zero_grad()
            model(torch.ones(2, 64), with_fc2=not (rank == 1 and step == 3)).sum().backward()
            optimizer.step()
    except RuntimeError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    return ""


@pytest.mark.parametrize("level", ["info", "detail"])
@pytest.mark.parametrize("backend", ["gloo", "distdbg"])
def test_a_layer_that_one_rank_does_not_use_is_named(
    watched: Watched, backend: str, level: str
) -> None:
    session = watched(skips_a_layer, level, backend=backend)
    assert marks_of(session, 1, NO_GRADIENT) == [("fc2.weight, fc2.bias", 3.0)]
    assert marks_of(session, 0, NO_GRADIENT) == []
    root = diagnose(session).root
    assert root is not None
    assert root.what.startswith("rank 1 did not use fc2.weight, fc2.bias in step 3"), root.what
    assert root.ranks == (1,)
    said = results(session)
    assert "no gradient for fc2.weight, fc2.bias" in said[1], said


def has_fewer_batches(leaves: bool) -> str:
    """Rank 1 has two batches in its second epoch, rank 0 three: all others have three."""
    from torch.utils.data import DataLoader

    dist = begin("gloo")
    try:
        for epoch in range(2):
            short = epoch == 1 and dist.get_rank() == 1
            for batch in DataLoader(torch.ones(4 if short else 6), batch_size=2):
                dist.all_reduce(batch)
        if leaves:
            dist.destroy_process_group()
        else:
            dist.barrier()
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("level", "leaves"), [("detail", False), ("info", True)])
def test_a_rank_whose_data_loader_ends_first_is_named(
    watched: Watched, level: str, leaves: bool
) -> None:
    session = watched(has_fewer_batches, level, leaves=leaves)
    words = "rank 1 ran out of batches at step 3; rank 0 went on"
    assert [words in text for text in results(session)] == [True, not leaves]
    verdict = diagnose(session)
    assert verdict.what == "rank 1 ran out of batches at step 3, rank 0 went on"
    counted = [("", number) for number in (1.0, 2.0, 3.0, 1.0, 2.0)]
    assert marks_of(session, 1, "batch") == counted
    assert marks_of(session, 1, "out of batches") == [("", 3.0), ("", 2.0)]


def trains_in_other_ways(backend: str) -> None:
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.checkpoint import checkpoint

    dist = begin(backend)
    rank = dist.get_rank()
    x = torch.ones(2, 64)

    def ddp(**options: Any) -> Any:
        return DistributedDataParallel(Net(), bucket_cap_mb=0.001, **options)

    accumulates = ddp()
    for _ in range(2):
        with accumulates.no_sync():
            accumulates(x).sum().backward()
        accumulates(x).sum().backward()
    for options in ({"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
        model = ddp(**options)
        for step in range(3):
            model(
                x, with_fc2=not options.get("find_unused_parameters") or step != 1
            ).sum().backward()
            model.zero_grad(set_to_none=False)
    static = ddp(static_graph=True)
    for _ in range(3):
        checkpoint(static.module.body, x.requires_grad_(), use_reentrant=True)
        static(x).sum().backward()
    parts = ddp()
    for _ in range(3):
        first, second = parts.module.fc1.weight, parts(x).sum()
        second.backward(retain_graph=False)
        first.square().sum().detach()
    uneven = ddp()
    with uneven.join():
        for _ in range(2 + rank):
            uneven(x).sum().backward()
    maker, judge = ddp(), ddp()  # each has its optimizer, and one loss gives gradients to both
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (maker, judge)]
    for _ in range(2):
        made = maker(x).repeat(1, 8)
        for at, seen in ((1, made.detach()), (0, made)):
            judge(seen).sum().backward()
            optimizers[at].step()
            optimizers[at].zero_grad()
    twice = ddp()
    optimizer = torch.optim.SGD(twice.parameters(), lr=0.01)
    for _ in range(2):
        output = twice(x).sum()
        output.backward(retain_graph=True)
        optimizer.step()
    torch.autograd.grad(twice.module(x).sum(), list(twice.parameters()))
    other = torch.nn.Linear(64, 64)  # not one of DDP
    one = ddp()
    for _ in range(2):
        output = one(x)
        other(x).sum().backward()
        output.sum().backward()
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "distdbg"])
def test_other_ways_to_train_leave_no_parameter_out(watched: Watched, backend: str) -> None:
    session = watched(trains_in_other_ways, backend=backend)
    for mark in (NO_GRADIENT, NOT_REDUCED):
        assert [marks_of(session, rank, mark) for rank in range(2)] == [[], []]
    assert diagnose(session).root is None


def goes_past_ddp(reduces: bool) -> None:
    from torch.nn.parallel import DistributedDataParallel

    dist = begin("gloo")
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 5):
        optimizer.zero_grad()
        output = model(torch.ones(2, 64)) if step < 3 else model.module(torch.ones(2, 64), False)
        output.sum().backward()
        for parameter in model.parameters() if reduces and step >= 3 else ():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


@pytest.mark.parametrize("reduces", [False, True])
def test_steps_that_go_past_ddp_are_a_note_unless_the_program_reduces(
    watched: Watched, reduces: bool
) -> None:
    session = watched(goes_past_ddp, reduces=reduces)
    for rank in range(2):
        assert [step for _, step in marks_of(session, rank, NOT_REDUCED)] == [3.0, 4.0]
    reported = [one.what for one in diagnose(session).findings]
    expected = "ranks 0-1 made 2 steps, from step 3 on, whose gradients DDP did not reduce"
    assert reported == ([] if reduces else [expected])


def differs_in_a_pass() -> list[object]:
    """Rank 1 sums something else where rank 0 reduces its first bucket."""
    from torch.nn.parallel import DistributedDataParallel

    from distdbg.torch_bridge.training.ddp import armed

    dist = begin("gloo")
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.01)
    was_known: list[bool] = []

    def look(_: Any) -> None:
        expected = armed[0].expects
        assert expected is not None
        was_known.append(expected.known is not None)

    model.module.fc2.bias.register_hook(look)
    for _ in range(4):
        model(torch.ones(2, 64)).sum().backward()
    loss = model(torch.ones(2, 64)).sum()
    with pytest.raises(MismatchError) as raised:
        loss.backward() if dist.get_rank() == 0 else dist.all_reduce(torch.ones(5))
    return [was_known, str(raised.value)]


def test_a_bucket_that_meets_another_op_raises_in_the_pass(watched: Watched) -> None:
    for was_known, text in results(watched(differs_in_a_pass, "detail")):
        # DDP orders its buckets anew after the first pass; then each is looked at once.
        assert was_known[:4] == [False, False, True, True]
        assert "float32[5] on rank 1" in text
        assert "(DDP bucket 0: fc2.bias to body.1.weight)" in text


def compiles(backend: str) -> list[float]:
    from torch.nn.parallel import DistributedDataParallel

    dist = begin(backend)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        compiled(torch.ones(2, 64)).sum().backward()
    total = sum(float(one.grad.sum()) for one in model.parameters())
    dist.destroy_process_group()
    return [total]


def test_a_compiled_model_trains_and_its_buckets_have_names(watched: Watched) -> None:
    session = watched(compiles, backend="gloo")
    assert results(session)[0] == results(session)[1]
    buckets = [comm for comm in comms_of(session, 0) if comm.startswith("DDP bucket 0: ")]
    assert len(buckets) == 3


def shards() -> None:
    dist = begin("gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    model.append(torch.nn.Linear(8, 8))
    fully_shard(model, mesh=mesh)
    for _ in range(2):
        model(torch.ones(4, 8)).sum().backward()
    dist.destroy_process_group()


@pytest.mark.skipif(
    torch.__version__ < (2, 7),
    reason="FSDP2 of torch 2.6 does not run on a CPU, with us or without",
)
def test_the_ops_of_fsdp_have_the_names_of_its_units(watched: Watched) -> None:
    session = watched(shards)
    for rank in range(2):
        kinds: dict[str, set[str]] = {}
        log = session.ranks[rank]
        for at, comm in enumerate(comms_of(session, rank)):
            kinds.setdefault(comm, set()).add(session.forms[log.ops.form[at]].kind)
        both = {"all_gather", "reduce_scatter"}
        assert kinds["FSDP unit 0 over mesh dimension dp"] == both
        assert kinds["FSDP unit 1 over mesh dimension dp"] == both
        assert kinds["FSDP root unit over mesh dimension dp"] == both
        assert marks_of(session, rank, MESH) == [("dp (2) on group 'world'", None)]
