"""Hints by the source of a program, each with a twin in which it would be wrong."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.session import Activity
from distdbg.diagnose.traits import traits_of
from distdbg.diagnose.verdict import diagnose
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.late_ranks import hint_of_end
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder


def hint(folder: Path, build: SessionBuilder) -> str:
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    return reported.root.advice


EVALUATE = """\
def compute(state):
    if is_initialized():
        all_reduce(state)
def train():
    all_reduce(grad)
def main():
    if rank == 0:
        compute(state)
    train()
"""


@pytest.mark.parametrize("condition", ["rank == 0", "loss < best", "world_size > 1"])
def test_a_condition_of_the_rank_comes_before_one_that_holds_on_all(
    tmp_path: Path, condition: str
) -> None:
    path = tmp_path / "job.py"
    path.write_text(EVALUATE.replace("rank == 0", condition))
    build = SessionBuilder(3)
    for rank in range(3):
        inner = f"{path}:3 (compute) < {path}:8 (main)"
        site, size = (f"{path}:5 (train) < {path}:9 (main)", 24) if rank else (inner, 2)
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
    reported = hint(tmp_path, build)
    if condition == "rank == 0":
        assert reported == (
            "only rank 0 came to job.py:3, by `if rank == 0` (line 7 of job.py): all ranks of the group "
            "have to make that call, or none"
        )
    elif condition == "loss < best":
        assert reported == (
            "see whether all ranks decide `if loss < best` (line 7 of job.py) alike: rank 0 came to job.py:3 "
            "by it"
        )
    else:
        assert "world_size" not in reported


def test_a_condition_that_both_sides_stand_under_parts_nobody(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("def main():\n    if ready:\n        all_reduce(a)\n        all_reduce(b)\n")
    build = SessionBuilder(3)
    for rank in range(3):
        site, size = (f"{path}:4 (main)", 24) if rank else (f"{path}:3 (main)", 2)
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
    assert "if ready" not in hint(tmp_path, build)


LEAVING = """\
def train(shards):
    for epoch in range(9):
        if not shards:
            return
        all_reduce(w)
"""


def test_the_return_by_which_a_rank_left_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(LEAVING)
    build = SessionBuilder(2)
    site = f"{path}:5 (train)"
    build.op(0, "all_reduce", at_s=1, ended_s=2, site=site)
    build.op(1, "all_reduce", at_s=1, ended_s=2, site=site)
    build.op(1, "all_reduce", at_s=3, site=f"{path}:6 (other)")
    build.exit(0, Exit.LEFT, at_s=2.5)
    assert hint(tmp_path, build) == (
        "see whether rank 0 left the loop by the `return` under `if not shards` (line 3): all ranks have to "
        "decide that alike"
    )


@pytest.mark.parametrize(
    ("key", "is_of_rank"), [("lambda b: rank not in b", True), ("lambda b: b[0]", False)]
)
def test_groups_in_an_order_that_depends_on_the_rank(
    tmp_path: Path, key: str, is_of_rank: bool
) -> None:
    path = tmp_path / "layout.py"
    path.write_text(
        f"def build(rank):\n    blocks = sorted(all, key={key})\n    for ranks in blocks:\n"
        "        new_group(ranks)\n"
    )
    build = SessionBuilder(4)
    site = f"{path}:4 (build)"
    advice = "every rank must make the same groups in the same order, including groups it is not in"
    what = "new_group #1 differs between ranks: group 0-1 on ranks 0-1, group 2-3 on ranks 2-3"
    facts = {"type": "MismatchError", "what": what, "ranks": [0, 1, 2, 3], "hint": advice}
    for rank in range(4):
        error = {"error": json.dumps(facts)}
        build.op(rank, "new_group", at_s=1, ended_s=2, site=site, status=Status.MISMATCH, **error)
    reported = hint(tmp_path, build)
    assert reported.startswith("every rank must make the same groups in the same order")
    assert (
        "`blocks = sorted(all, key=lambda b: rank not in b)` (line 2 of layout.py)" in reported
    ) is (is_of_rank)


@pytest.mark.parametrize("called", ["hash(name)", "zlib.crc32(name)"])
def test_roots_by_the_hash_of_a_text(tmp_path: Path, called: str) -> None:
    path = tmp_path / "adam.py"
    path.write_text(
        "class Adam:\n    def __init__(self, names):\n"
        f"        self.owner = {{name: {called} % 4 for name in names}}\n"
        "    def step(self):\n        dist.broadcast(p, src=self.owner[name])\n"
    )
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "broadcast", at_s=1, site=f"{path}:5 (step)", root=rank)
    reported = hint(tmp_path, build)
    known = (
        "hash() of a text is another number in each process: take a stable one, such as zlib.crc32, for "
        "`self.owner = {name: hash(name) % 4 for name in names}` (line 3 of adam.py)"
    )
    assert (reported == known) is (called == "hash(name)")


SKIPPING = """\
def average(net):
    for p in net.parameters():
        if p.grad is None:
            continue
        all_reduce(p.grad)
"""


def test_a_round_that_a_rank_skipped_is_the_hint_of_another_array_at_one_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.py"
    path.write_text(SKIPPING)
    build = SessionBuilder(3)
    site = f"{path}:5 (average)"
    for rank in range(3):
        sizes = [(48, 4), (48, 49), (48, 4)] if rank != 2 else [(48, 4), (48, 4)]
        for at, size in enumerate(sizes[:2]):
            end = {"ended_s": at + 1.5} if not at else {}
            build.op(
                rank, "all_reduce", at_s=at + 1, site=site, dtype="float32", inputs=[size], **end
            )
    session = build.session
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH
    assert verdict.root.advice.startswith("another array on")
    assert hint(tmp_path, build) == (
        "see whether rank 2 skipped a round by the `continue` under `if p.grad is None` (line 3 of job.py)"
    )


def test_groups_that_some_ranks_alone_make(tmp_path: Path) -> None:
    path = tmp_path / "shard.py"
    path.write_text("def make():\n    if rank in MINE:\n        new_group(MINE)\n    new_group()\n")
    build = SessionBuilder(4)
    advice = "every rank must make the same groups in the same order, including groups it is not in"
    what = "new_group #1 differs between ranks: group 0-3 on ranks 0-1, group 2-3 on ranks 2-3"
    facts = {"type": "MismatchError", "what": what, "ranks": [0, 1, 2, 3], "hint": advice}
    for rank in range(4):
        site = f"{path}:{3 if rank > 1 else 4} (make)"
        error = {"error": json.dumps(facts)}
        build.op(rank, "new_group", at_s=1, ended_s=2, site=site, status=Status.MISMATCH, **error)
    assert hint(tmp_path, build) == (
        "only ranks 2-3 came to shard.py:3, by `if rank in MINE` (line 2 of shard.py): all ranks of the "
        "group have to make that call, or none"
    )


@pytest.mark.parametrize("sent", ["os.killpg(os.getpgid(p.pid), 9)", "p.kill()"])
def test_where_a_module_of_the_program_sends_signals_is_the_hint_of_a_kill(
    tmp_path: Path, sent: str
) -> None:
    path = tmp_path / "job.py"
    path.write_text("import sampler\ndef main():\n    dist.all_reduce(sampler.load())\n")
    (tmp_path / "sampler.py").write_text(f"def stop(p):\n    {sent}\n")
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=2, site=f"{path}:3 (main)")
    build.end(1, at_s=3, cause="signal", signal=signal.SIGKILL)
    reported = hint(tmp_path, build)
    known = (
        "signals are sent at sampler.py:2: see whether that hits rank 1 itself; a child shares its process "
        "group without start_new_session=True"
    )
    assert (reported == known) is ("killpg" in sent)
    build.session.ranks[1].end = None
    build.end(1, at_s=3, cause="oom", signal=signal.SIGKILL)
    assert "signals are sent" not in hint(tmp_path, build)  # it is known who has sent it
    traits = traits_of(reported)
    diagnosis = Diagnosis(kind="dead rank", what="x", advice=reported, traits=traits)
    assert hint_of_end(diagnosis) == (reported if "killpg" in sent else "")


ROUNDS = """\
def main():
    for _ in range(cfg.accumulate):
        forward()
    for _ in range(cfg.accumulate):
        backward()
def forward():
    if self.next is not None:
        send(y)
def backward():
    send(dz)
"""


def test_of_two_senders_in_two_loops_the_first_loop_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(ROUNDS)
    build = SessionBuilder(2)
    sites = (f"{path}:8 (forward) < {path}:3 (main)", f"{path}:10 (backward) < {path}:5 (main)")
    for rank, site in enumerate(sites):
        op = build.op(rank, "send", at_s=1, peer=1 - rank, site=site)
        build.wait(op, since_s=1)
    known = (
        "see whether `for _ in range(cfg.accumulate)` (line 2 of job.py) makes as many rounds on rank 1, "
        "which left it, as on rank 0"
    )
    assert hint(tmp_path, build) == known
    for rank, line, count in ((0, 3, 8), (1, 5, 4)):
        values = {"_": f"= {rank}", "accumulate": f"= {rank}", "cfg.accumulate": f"= {count}"}
        build.session.ranks[rank].left_values = {(str(path), line): values}
    assert hint(tmp_path, build) == f"{known}: cfg.accumulate is 8 on rank 0 and 4 on rank 1"


PUBLISHING = """\
def wait_for(path):
    while not path.exists():
        sleep(1)
def prepare(path):
    if get_rank() == 0:
        write(temporary)
        barrier()
        os.replace(temporary, path)
    else:
        wait_for(path)
"""


@pytest.mark.parametrize("made", ["os.replace(temporary, path)", "log(path)"])
def test_a_file_that_is_made_behind_the_op_in_which_its_maker_waits(
    tmp_path: Path, made: str
) -> None:
    path = tmp_path / "tokens.py"
    path.write_text(PUBLISHING.replace("os.replace(temporary, path)", made))
    build = SessionBuilder(2)
    build.op(0, "barrier", at_s=1, site=f"{path}:7 (prepare)")
    build.session.ranks[1].activity = Activity(
        state=RankState.ASLEEP,
        since_ns=2 * 10**9,
        why="in a loop of short sleeps",
        site="tokens.py:3 (wait_for)",
        stack=(RecordedFrame(str(path), 3, "wait_for"), RecordedFrame(str(path), 10, "prepare")),
    )
    reported = hint(tmp_path, build)
    if made == "log(path)":
        assert reported.startswith("`while not path.exists()` (line 2) waits for a file")
    else:
        assert reported == (
            "rank 0 makes the file that rank 1 waits for by `os.replace(temporary, path)` (line 8 of "
            "tokens.py), behind the op that it is in (tokens.py:7): make it before"
        )


STEPS = """\
def epoch(self, loader):
    for inputs in loader:
        if not isfinite(loss):
            continue
        backward()
    return summary()
def main():
    for step in range(STEPS):
        update(step)
        if CONDITION:
            report(step)
"""


def test_what_skipped_a_call_of_the_loop_that_a_rank_has_left(tmp_path: Path) -> None:
    path = tmp_path / "fit.py"
    path.write_text(STEPS)
    build = SessionBuilder(3)
    for rank in range(3):
        for at in range(1, 6):
            build.op(rank, "all_reduce", at_s=at, ended_s=at + 0.5, site=f"{path}:5 (epoch)")
        line, size = (6, 2) if rank == 1 else (5, 24)
        site = f"{path}:{line} (epoch)"
        build.op(rank, "all_reduce", at_s=6, site=site, dtype="float32", inputs=[(size,)])
    assert hint(tmp_path, build) == (
        "see whether rank 1 skipped fit.py:5 by the `continue` under `if not isfinite(loss)` "
        "(line 3 of fit.py)"
    )


@pytest.mark.parametrize(
    ("condition", "ahead"), [("rank == 0", 1), ("is_due(step)", 1), ("True", 5)]
)
def test_a_round_ahead_is_no_cause_where_ranks_are_at_other_lines(
    tmp_path: Path, condition: str, ahead: int
) -> None:
    path = tmp_path / "fit.py"
    path.write_text(STEPS.replace("CONDITION", condition).replace("if True:", "if 1:"))
    build = SessionBuilder(3)
    for rank in range(3):
        line, size, step = (9, 24, 4 + ahead) if rank else (11, 2, 4)
        site = f"{path}:{line} (main)"
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
        build.session.ranks[rank].left_values = {(str(path), line): {"step": f"= {step}"}}
    reported = hint(tmp_path, build)
    if ahead > 1:
        assert reported.startswith("see where step starts: ")
    elif condition == "rank == 0":
        assert reported.startswith(
            "only rank 0 came to fit.py:11, by `if rank == 0` (line 10 of fit.py)"
        )
    else:
        assert reported.startswith(
            "see whether all ranks decide `if is_due(step)` (line 10 of fit.py) alike"
        )


HOOKS = """\
def reduce(parameter):
    all_reduce(parameter.grad)
def main():
    if uses_right:
        right(batch).backward()
    left(batch).backward()
"""


def test_who_came_to_one_line_by_other_callers_took_a_condition(tmp_path: Path) -> None:
    path = tmp_path / "fit.py"
    path.write_text(HOOKS)
    build = SessionBuilder(3)
    for rank in range(3):
        caller, size = (5, 6) if rank == 1 else (6, 4)
        site = f"{path}:2 (reduce) < {path}:{caller} (main)"
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
    assert hint(tmp_path, build) == (
        "see whether all ranks decide `if uses_right` (line 4 of fit.py) alike: rank 1 came to fit.py:2 by it"
    )


FARM = """\
def farm():
    for worker in workers:
        if not pending:
            break
        send(worker)
    while busy:
        if rank == 0:
            send(STOP)
"""


@pytest.mark.parametrize(("line", "reported"), [
    (5, "see whether rank 0 left the loop before that call by the `break` under `if not pending` "
        "(line 3 of farm.py)"),
    (8, "see why rank 0 leaves out rank 3"),
])  # fmt: skip
def test_the_exit_of_the_loop_in_which_others_got_a_message(
    tmp_path: Path, line: int, reported: str
) -> None:
    path = tmp_path / "farm.py"
    path.write_text(FARM)
    build = SessionBuilder(4)
    for at_s, workers in ((1, (1, 2, 3)), (5, (1, 2))):
        for worker in workers:
            site = f"{path}:{line} (farm)"
            build.op(0, "send", peer=worker, at_s=at_s, ended_s=at_s + 1, site=site)
            where = "run.py:20 (work)"
            build.op(worker, "recv", peer=0, source=0, at_s=at_s, ended_s=at_s + 1, site=where)
        for rank in range(4) if at_s == 1 else ():
            build.op(rank, "broadcast", at_s=3, ended_s=4, site="run.py:9 (main)")
    build.op(3, "recv", peer=0, at_s=7, site="run.py:20 (work)")
    for rank in (0, 1, 2):
        build.op(rank, "broadcast", at_s=7, site="run.py:9 (main)")
    assert hint(tmp_path, build).startswith(reported)


@pytest.mark.parametrize(
    "kinds", [("send", "recv"), ("broadcast", "broadcast"), ("barrier", "broadcast")]
)
def test_calls_in_both_branches_of_a_condition_of_the_rank_are_meant_for_each_other(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    path = tmp_path / "job.py"
    path.write_text("def main():\n    if rank == 0:\n        f(x)\n    else:\n        f(y)\n")
    build = SessionBuilder(2)
    for rank, kind in enumerate(kinds):
        site = f"{path}:{5 if rank else 3} (main)"
        if kind in ("send", "recv"):
            what = "message on group 'world' differs between ranks: rank 0 sent 4 float32, rank 1 expects 3"
            facts = {
                "type": "MismatchError",
                "what": what,
                "ranks": [0, 1],
                "hint": "see the sizes",
            }
            error = {"error": json.dumps(facts), "peer": 1 - rank}
            build.op(rank, kind, at_s=1, ended_s=2, site=site, status=Status.MISMATCH, **error)
        else:
            build.op(rank, kind, at_s=1, site=site, inputs=[(4 - rank,)], dtype="float32")
    assert ("only rank" in hint(tmp_path, build)) is (kinds[0] == "barrier")


@pytest.mark.parametrize(("line", "loop"), [(6, ""), (4, ""), (6, "while True:")])
def test_an_exit_that_a_rank_has_passed_is_no_hint(tmp_path: Path, line: int, loop: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "def main():\n    if True:\n        if is_first:\n            return gather(x)\n"
        "        if is_odd:\n            reduce(x)\n        else:\n            reduce(y)\n".replace(
            "if True:", loop or "if True:"
        )
    )
    build = SessionBuilder(3)
    for rank in range(3):
        site, size = (f"{path}:8 (main)", 4) if rank != 1 else (f"{path}:{line} (main)", 2)
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
    reported = hint(tmp_path, build)
    assert ("by the `return` under `if is_first`" in reported) is (line == 4 or bool(loop)), (
        reported
    )
