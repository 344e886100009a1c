"""Hints at random numbers that are not the same on all ranks, with twins in which they would be wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import Case
from distdbg.render.hints.randomness import by_own_draw, by_shared_draw
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

END = ": seed it alike on all ranks, or draw on one and broadcast"


def case(folder: Path, text: str, **modules: str) -> Case:
    """Of one rank: where `all_reduce` stands, called from where `step(` is."""
    path = folder / "job.py"
    path.write_text(text)
    for name, module in modules.items():
        (folder / f"{name}.py").write_text(module)
    lines = text.splitlines()
    at = [n for n, line in enumerate(lines, 1) if "all_reduce(" in line][:1]
    at += [n for n, line in enumerate(lines, 1) if " step(" in line and "def " not in line]
    frames = tuple(
        ReportedFrame(frame=RecordedFrame(str(path), line, "f"), text=lines[line - 1])
        for line in at
    )
    reported = ReportedStack(ranks=(1,), what="in all_reduce", is_cause=True, frames=frames)
    root = Finding(kind=FindingKind.DEADLOCK, severity=Severity.ERROR, what="x", ranks=(1,))
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    return Case(session=SessionBuilder(2).session, root=root, reported=[reported], source=source)


COIN = """\
import random
def main():
    for batch in loader:
        if random.random() < 0.3:
            all_reduce(batch)
"""


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        ("", "as nothing seeds `random`"),
        ("random.seed(40 + rank)", "as `random.seed(40 + rank)` (line 2) seeds it by the rank"),
        ("random.seed()", "as `random.seed()` (line 2) gives it no seed"),
        ("np.random.seed(7)", "as nothing seeds `random`"),
        ("random.seed(7)", ""),
        ("seed_everything(7)", ""),
    ],
)
def test_a_condition_around_a_call_that_each_rank_draws_for_itself(
    tmp_path: Path, seed: str, why: str
) -> None:
    text = COIN.replace("import random\n", f"import random\n{seed}\n")
    expected = (
        "each rank draws numbers of its own in `if random.random() < 0.3` (line 5 of job.py), "
    )
    assert by_own_draw(case(tmp_path, text)) == (f"{expected}{why}{END}" if why else "")


@pytest.mark.parametrize(
    "use",
    [
        "if random.random() < 0.3:\n            log(batch)\n        all_reduce(batch)",
        "coin = random.random()\n        broadcast(coin)\n"
        "        if coin < 0.3:\n            all_reduce(batch)",
        "batch = shuffle(batch, random.random())\n        all_reduce(batch)",
        "for i in random.sample(batch, 4):\n            all_reduce(i)",
    ],
)
def test_numbers_that_do_not_decide_whether_a_rank_comes_there(tmp_path: Path, use: str) -> None:
    text = COIN.replace("if random.random() < 0.3:\n            all_reduce(batch)", use)
    assert by_own_draw(case(tmp_path, text)) == ""


COIN_FIRST = """\
coin = random.random()
        if coin < 0.3:
            all_reduce(batch)"""
BREAK_AFTER = """\
all_reduce(batch)
        if random.random() < 0.1:
            break"""
CONTINUE_BEFORE = """\
if random.random() < 0.1:
            continue
        all_reduce(batch)"""
ROUNDS = """\
for _ in range(random.randint(1, 4)):
            all_reduce(batch)"""


@pytest.mark.parametrize(
    ("use", "line", "reported"),
    [
        (COIN_FIRST, 4, "coin = random.random()"),
        (BREAK_AFTER, 5, "if random.random() < 0.1"),
        (CONTINUE_BEFORE, 4, "if random.random() < 0.1"),
        (ROUNDS, 4, "for _ in range(random.randint(1, 4))"),
    ],
)
def test_what_skips_a_call_or_ends_its_loop_by_such_a_number(
    tmp_path: Path, use: str, line: int, reported: str
) -> None:
    text = COIN.replace("if random.random() < 0.3:\n            all_reduce(batch)", use)
    assert by_own_draw(case(tmp_path, text)).startswith(
        f"each rank draws numbers of its own in `{reported}` (line {line} of job.py), as nothing seeds"
    )


PASSED = """\
import numpy as np
def step(batch, rng):
    while rng.random() > 0.2:
        all_reduce(batch)
def main():
    rank = get_rank()
    seed = SEED
    rng = np.random.default_rng(seed)
    for batch in loader:
        loss = step(batch, rng)
"""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("seed = SEED + rank", "as `rng = np.random.default_rng(seed)` (line 8) seeds it by the rank"),
        ("seed = SEED", ""),
    ],
)  # fmt: skip
def test_a_generator_that_a_caller_has_made(tmp_path: Path, made: str, why: str) -> None:
    reported = by_own_draw(case(tmp_path, PASSED.replace("seed = SEED", made)))
    assert (why in reported) if why else not reported
    bare = PASSED.replace("default_rng(seed)", "default_rng()")
    assert "gives it no seed" in by_own_draw(case(tmp_path, bare))


def test_torch_seeds_itself_alike_until_it_is_told_otherwise(tmp_path: Path) -> None:
    text = COIN.replace("random.random()", "torch.rand(1).item()")
    assert by_own_draw(case(tmp_path, text)) == ""
    text = text.replace("import random\n", "import torch\ntorch.manual_seed(rank)\n")
    assert "`torch.manual_seed(rank)` (line 2)" in by_own_draw(case(tmp_path, text))


def test_a_seed_that_a_function_of_the_program_is_given(tmp_path: Path) -> None:
    seeds = "import random\ndef set_seed(seed):\n    random.seed(seed)\n"
    text = COIN.replace("def main():", "from seeds import set_seed\ndef main():\n    set_seed({})")
    assert by_own_draw(case(tmp_path, text.format("7"), seeds=seeds)) == ""
    reported = by_own_draw(case(tmp_path, text.format("7 + get_rank()"), seeds=seeds))
    assert "`random.seed(seed)` (line 3 of seeds.py) seeds it by the rank" in reported


DEPTH = """\
import numpy as np
from images import crop
def step(net, images, rng):
    x = [crop(image, rng) for image in images]
    active = net.draw(rng)
    for block in reversed(active):
        all_reduce(block)
def main():
    rng = np.random.default_rng(7)
    for images in loader:
        loss = step(net, images, rng)
"""
CROP = """\
def crop(image, rng):
    while True:
        part = cut(image, rng.integers(0, 9, 2))
        if part.max() > 0.8:
            return part
"""


def test_another_function_that_draws_as_often_as_its_data_ask(tmp_path: Path) -> None:
    assert by_shared_draw(case(tmp_path, DEPTH, images=CROP)) == (
        "`active = net.draw(rng)` (line 5 of job.py) needs the same numbers on all ranks, and crop() draws "
        "from that generator as often as its data ask (line 3 of images.py): give crop() another one than "
        "that of line 9"
    )
    assert by_own_draw(case(tmp_path, DEPTH, images=CROP)) == ""


@pytest.mark.parametrize(
    ("text", "images"),
    [
        (DEPTH, "def crop(image, rng):\n    return cut(image, rng.integers(0, 9, 2))\n"),
        (DEPTH, "def crop(image, rng):\n    for one in image:\n        one += rng.normal()\n"),
        (DEPTH.replace("crop(image, rng)", "crop(image, own)"), CROP),
        (DEPTH.replace("net.draw(rng)", "net.blocks"), CROP),
        (DEPTH.replace("default_rng(7)", "default_rng(rank)"), CROP),
    ],
)
def test_one_that_draws_as_often_on_all_ranks_or_from_another_generator(
    tmp_path: Path, text: str, images: str
) -> None:
    assert by_shared_draw(case(tmp_path, text, images=images)) == ""
