"""Which condition of the model kept a rank from a part of it; each has a twin where it would be wrong."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.traits import FactKind
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import Case
from distdbg.render.hints.parameters import by_condition, past_ddp
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

ADVICE = (
    "use all parameters on every rank, or DistributedDataParallel(..., find_unused_parameters=True)"
)
BOX = "box.0.weight, box.0.bias, box.2.weight"
PAST = "DDP reduced no gradient in a step from step 3 on: "
OR = "; or find_unused_parameters=True for DistributedDataParallel"


def hint(
    folder: Path, forward: str, names: str = BOX, *, made: tuple[int, ...] = (), more: str = ""
) -> str:
    """Of a model whose class has the parts `box`, `mask` and `encoder`, in a module of its own."""
    (folder / "job.py").write_text("from model import Detector\nloss = model(x)\n")
    head = "class Detector:\n    def __init__(self):\n        self.box = self.mask = self.encoder = f()\n"
    body = textwrap.indent(textwrap.dedent(forward), "    ")
    (folder / "model.py").write_text(f"{head}{body}\n{more}")
    frame = RecordedFrame(str(folder / "job.py"), 2, "main")
    build = SessionBuilder(3)
    for line in made:
        site = f"{folder}/job.py:{line} (main)"
        build.op(2, "all_gather", at_s=line, ended_s=line + 0.1, site=site)
    if made:
        build.session.comms.append("DDP compares the shapes of parameters")
        ops = build.session.ranks[2].ops
        ops.comm[:] = type(ops.comm)(ops.comm.typecode, [1] * len(ops))
    root = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="rank 2 did not use box.0.weight in step 9",
        ranks=(2,),
        evidence=(
            Evidence(
                text=f"rank 2 gave no gradient to {names} in step 9",
                rank=2,
                kind=FactKind.NO_GRADIENT,
                detail=names,
            ),
        ),
        advice=ADVICE,
        numbers={"step": 9.0},
    )
    reported = ReportedStack(
        ranks=(2,),
        what="raised RuntimeError",
        is_cause=True,
        frames=(ReportedFrame(frame=frame, text="loss = model(x)"),),
    )
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    return by_condition(Case(session=build.session, root=root, reported=[reported], source=source))


UNDER_IF = """\
def forward(self, x, objects):
    if objects.any():
        x = x + self.box(x)
    return x
"""


def test_the_condition_around_the_call_of_the_part_is_named(tmp_path: Path) -> None:
    assert hint(tmp_path, UNDER_IF) == (
        "see `if objects.any()` (line 5 of model.py), under which self.box is called: rank 2 did not take "
        f"that branch in step 9{OR}"
    )
    assert hint(tmp_path, UNDER_IF, made=(35,)).endswith(f"{OR} (line 35 of job.py)")


@pytest.mark.parametrize(
    ("forward", "begin"),
    [
        (
            """\
            def forward(self, x):
                if x.ok:
                    return x
                else:
                    return self.box(x)
            """,
            "see `else` of `if x.ok` (line 5 of model.py), under which self.box is called: ",
        ),
        (
            """\
            def forward(self, x):
                if not x.any():
                    return x
                return self.box(x)
            """,
            "see the `return` under `if not x.any()` (line 5 of model.py), which skips self.box: ",
        ),
        (
            """\
            def forward(self, x):
                return self.box(x) if x.any() else x
            """,
            "see `if x.any()` (line 5 of model.py), under which self.box is called: ",
        ),
    ],
)
def test_so_is_another_branch_an_early_return_and_a_choice(
    tmp_path: Path, forward: str, begin: str
) -> None:
    assert hint(tmp_path, forward).startswith(begin)


@pytest.mark.parametrize(
    "forward",
    [
        pytest.param("def forward(self, x):\n    return self.box(x)", id="in any case"),
        pytest.param(f"{UNDER_IF}\ndef score(self, x):\n    return self.box(x)", id="elsewhere"),
        pytest.param(
            """\
            def forward(self, x):
                if x.small:
                    return self.box(x)
                if x.large:
                    x = self.box(-x)
                return x
            """,
            id="two conditions",
        ),
        pytest.param(
            "def forward(self, x):\n    if x:\n        f(other.box)", id="of another object"
        ),
    ],
)
def test_a_part_that_is_not_called_under_one_condition_gives_no_hint(
    tmp_path: Path, forward: str
) -> None:
    assert hint(tmp_path, forward) == ""
    assert hint(tmp_path, forward, made=(35,)) == f"{ADVICE} at line 35 of job.py"
    assert hint(tmp_path, forward, made=(35, 36)) == ""  # of several models nobody knows which


def test_another_class_that_calls_a_part_of_that_name_under_a_condition_is_not_the_model(
    tmp_path: Path,
) -> None:
    other = "class Chart:\n    def draw(self, x):\n        if x:\n            self.box(x)\n"
    assert hint(tmp_path, "def forward(self, x):\n    return self.box(x)", more=other) == ""


NESTED = """\
def forward(self, x):
    x = self.encoder(x)
    return x
"""
LAYER = """\
class Layer:
    def __init__(self):
        self.adapter = f()
    def forward(self, x):
        if x.long:
            x = self.adapter(x)
        return x
"""


def test_a_part_of_a_part_is_found_by_its_own_name(tmp_path: Path) -> None:
    names = "encoder.layers.2.adapter.weight, encoder.layers.2.adapter.bias and 3 more"
    assert hint(tmp_path, NESTED, names, more=LAYER).startswith(
        "see `if x.long` (line 12 of model.py), under which self.adapter is called: "
    )
    assert hint(tmp_path, NESTED, "encoder.layers.2.norm.weight", more=LAYER) == ""


def test_parts_under_one_condition_are_one_cause_and_those_under_two_are_not(
    tmp_path: Path,
) -> None:
    both = UNDER_IF.replace("self.box(x)", "self.box(x) + self.mask(x)")
    names = "box.weight, mask.weight"
    assert hint(tmp_path, both, names).startswith("see `if objects.any()` (line 5 of model.py)")
    apart = both.replace("    return x", "    if x.sum() > 0:\n        self.mask(x)\n    return x")
    assert hint(tmp_path, apart, names) == ""


def past(folder: Path, text: str, *, unreduced: bool = True) -> str:
    """Of an error of rank 2 in a job whose module imports that."""
    (folder / "job.py").write_text("from model import loss\nraise ValueError\n")
    (folder / "model.py").write_text(text)
    build = SessionBuilder(3)
    if unreduced:
        build.mark(2, "not reduced: box.0.weight", 3, at_s=1)
    build.mark(2, "step", 3, at_s=2)
    frames = (ReportedFrame(frame=RecordedFrame(str(folder / "job.py"), 2, "main"), text="raise"),)
    reported = ReportedStack(ranks=(2,), what="raised ValueError", is_cause=True, frames=frames)
    root = Finding(kind=FindingKind.DEAD_RANK, severity=Severity.ERROR, what="x", ranks=(2,))
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    return past_ddp(Case(session=build.session, root=root, reported=[reported], source=source))


@pytest.mark.parametrize("call", ["model.module.rebuild(x)", "self.model.module(x)"])
def test_a_call_past_ddp_is_named(tmp_path: Path, call: str) -> None:
    text = f"def loss(model, x):\n    torch.save(model.module.state_dict())\n    return {call}\n"
    assert past(tmp_path, text) == (
        f"{PAST}`{call}` (line 3 of model.py) goes past its forward; call the DDP object itself"
    )
    assert past(tmp_path, text, unreduced=False) == ""


@pytest.mark.parametrize("call", ["model.module.named_parameters()", "model(x)", "module.f(x)"])
def test_without_such_a_call_it_is_said_what_to_look_for(tmp_path: Path, call: str) -> None:
    assert past(tmp_path, f"def loss(model, x):\n    return {call}\n") == (
        f"{PAST}call the DDP object itself, not its .module: only its forward pass prepares the reduction"
    )
