"""Hints at what only one side of the ranks did: by its own clock, as a member alone, in another branch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.render.finding_stacks import tell_stacks
from distdbg.render.hints.array_origin import by_function
from distdbg.render.hints.branches import by_rounds, by_some_alone
from distdbg.render.hints.case import Case
from distdbg.render.hints.clocks import by_own_clock
from distdbg.render.hints.set_orders import by_set_order
from distdbg.render.hints.taken_files import by_removal
from distdbg.render.hints.values import by_round
from distdbg.render.hints.waits import by_default_of_pipes, by_own_lock, by_recursion_limit
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder


def case(
    folder: Path,
    text: str,
    sites: dict[int, str],
    *,
    are_all_causes: bool = False,
    **values: dict[int, str],
) -> Case:
    """Ranks at lines of one file, the cause last; `values`: of a variable at each rank's innermost line."""
    path = folder / "job.py"
    path.write_text(text)
    build = SessionBuilder(len(sites))
    for rank, lines in sites.items():
        site = " < ".join(f"{path}:{line}" for line in lines.split(" < "))
        build.op(rank, "all_reduce", at_s=1, site=site)
        line = int(lines.partition(" ")[0])
        reported = {name: f"= {each[rank]}" for name, each in values.items()}
        build.session.ranks[rank].left_values = {(str(path), line): reported}
    root = Finding(
        kind=FindingKind.MISMATCH,
        severity=Severity.ERROR,
        what="differs",
        ranks=tuple(sites) if are_all_causes else (max(sites),),
        victims=() if are_all_causes else tuple(sorted(sites)[:-1]),
        advice="see it",
    )
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={}, lacks=())
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    stacks = tell_stacks(build.session, verdict, root, source, letters=80)
    return Case(session=build.session, root=root, reported=stacks, source=source)


CLOCK = """\
def due(self):
    return monotonic() - self.last >= self.every
def save(self):
    barrier()
def main():
    for batch in loader:
        if saver.due():
            saver.save()
        all_reduce(loss)
"""
SAVING = {0: "9 (main)", 1: "4 (save) < 8 (main)"}


def test_a_condition_that_each_rank_decides_by_its_own_clock(tmp_path: Path) -> None:
    assert by_own_clock(case(tmp_path, CLOCK, SAVING)) == (
        "each rank asks its own clock, in `return monotonic() - self.last >= self.every` (line 2 of job.py) "
        "of `if saver.due()` (line 7 of job.py): let one rank decide, and broadcast that"
    )
    direct = CLOCK.replace("if saver.due()", "if time.time() > until")
    assert by_own_clock(case(tmp_path, direct, SAVING)).startswith(
        "each rank asks its own clock, in `if time.time() > until` (line 7 of job.py): "
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("monotonic() - self.last", "self.step - self.last"),  # no clock
        ("        all_reduce(loss)", "            all_reduce(loss)"),  # both sides stand under it
    ],
)
def test_without_a_clock_or_with_one_for_all_nothing_is_told(
    tmp_path: Path, old: str, new: str
) -> None:
    assert by_own_clock(case(tmp_path, CLOCK.replace(old, new), SAVING)) == ""


ELITE = """\
def group_of(ranks):
    if ranks not in groups:
        groups[ranks] = new_group(ranks)
    return groups[ranks]
def average(best):
    if get_rank() not in best:
        return
    all_reduce(w, group=group_of(best))
"""


def test_the_exit_that_asks_for_the_rank_is_why_members_alone_make_a_group(tmp_path: Path) -> None:
    sites = {0: "9 (main)", 1: "3 (group_of) < 8 (average)"}
    assert by_some_alone(case(tmp_path, ELITE, sites)) == (
        "see it; the others left by the `return` under `if get_rank() not in best` (line 6 of job.py)"
    )
    bare = ELITE.replace("    if get_rank() not in best:\n        return\n", "    pass\n    pass\n")
    assert by_some_alone(case(tmp_path, bare, sites)) == (
        "see it; it stands under `if ranks not in groups` (line 2 of job.py)"
    )
    assert by_some_alone(case(tmp_path, ELITE, {0: "9 (main)", 1: "8 (average)"})) == ""


FARM = """\
def main():
    if rank == 0:
        for wave in waves:
            recv(reply)
        recv(last)
    else:
        recv(task)
"""


@pytest.mark.parametrize(("line", "is_reported"), [(7, False), (5, True)])
def test_who_is_in_the_other_branch_has_never_left_the_loop(
    tmp_path: Path, line: int, is_reported: bool
) -> None:
    sites = {0: "4 (main)", 1: f"{line} (main)"}
    reported = by_rounds(case(tmp_path, FARM, sites, are_all_causes=True))
    assert ("`for wave in waves`" in reported) is is_reported
    assert bool(reported) is is_reported


SKIPPING = """\
def main():
    for step in {rounds}:
        if bad(step):
            continue
        for bucket in buckets:
            all_reduce(bucket)
    barrier()
"""


def test_in_a_loop_of_a_fixed_number_of_rounds_the_continue_is_the_hint(tmp_path: Path) -> None:
    sites = {0: "6 (main)", 1: "7 (main)"}
    skips = "`continue` under `if bad(step)` (line 3 of job.py)"
    fixed = case(tmp_path, SKIPPING.format(rounds="range(4)"), sites, are_all_causes=True)
    assert by_rounds(fixed) == f"see whether rank 1 skipped job.py:6 by the {skips}"
    other = case(tmp_path, SKIPPING.format(rounds="batches"), sites, are_all_causes=True)
    assert by_rounds(other) == (
        "see whether `for bucket in buckets` (line 5 of job.py) makes as many rounds on rank 1, which left "
        f"it, as on rank 0, or skips job.py:6 by the {skips}"
    )


@pytest.mark.parametrize(
    "end",
    [
        "        if late(step):\n            break\n",
        "        if a:\n            return\n        if b:\n            return\n        break\n",
        "        for one in todo:\n            if late(one):\n                return\n",
    ],
    ids=["a break", "the third exit", "a return of an inner loop"],
)
def test_in_a_fixed_loop_that_may_end_early_the_continue_alone_is_not_the_hint(
    tmp_path: Path, end: str
) -> None:
    text = SKIPPING.format(rounds="range(4)").replace("    barrier()", f"{end}    barrier()")
    sites = {0: "6 (main)", 1: f"{text.count(chr(10))} (main)"}
    assert by_rounds(case(tmp_path, text, sites, are_all_causes=True)) == (
        "see whether `for bucket in buckets` (line 5 of job.py) makes as many rounds on rank 1, which left "
        "it, as on rank 0, or skips job.py:6 by the `continue` under `if bad(step)` (line 3 of job.py)"
    )


BACK = """\
def main():
    step = 0
    while step < STEPS:
        all_reduce(x)
        if broken:
            step, state = newest()
        step += 1
        if step % 5 == 0:
            all_gather(y)
"""


def test_the_line_that_sets_the_number_of_the_round_anew(tmp_path: Path) -> None:
    sites = {0: "9 (main)", 1: "4 (main)"}
    steps = {0: "30", 1: "26"}
    assert by_round(case(tmp_path, BACK, sites, step=steps)) == (
        "step is 26 on rank 1 and 30 on rank 0 in `while step < STEPS` (line 3 of job.py), as `step, state = "
        "newest()` (line 6) sets it anew"
    )
    plain = BACK.replace("step, state = newest()", "state = newest()")
    assert by_round(case(tmp_path, plain, sites, step=steps)).endswith("30 on rank 0")


DAYS = """\
def by_day(seconds):
    first = min(seconds)
    sums = np.zeros(max(seconds) - first + 1)
    return first, sums
def main():
    first, sums = by_day(seconds)
    all_reduce(sums)
"""


def test_the_line_of_a_function_that_makes_the_array(tmp_path: Path) -> None:
    sites = {0: "7 (main)", 1: "7 (main)"}
    assert by_function(case(tmp_path, DAYS, sites)) == (
        "see it: sums is made by `sums = np.zeros(max(seconds) - first + 1)` (line 3 of job.py) in by_day()"
    )
    own = DAYS.replace("first, sums = by_day(seconds)", "sums = np.zeros(len(seconds))")
    assert by_function(case(tmp_path, own, sites)) == ""  # that line is shown with the call


HANDLER = """\
signal(SIGALRM, self.tick)
class Stats:
    def add(self):
        with self.lock:
            sort(self.kept)
    def summary(self):
        with self.lock:
            return self.kept
    def tick(self):
        print(self.summary())
"""
INTERRUPTED = "7 (Stats.summary) < 10 (Stats.tick) < 5 (Stats.add)"


def test_a_signal_handler_that_wants_the_lock_of_what_it_interrupted(tmp_path: Path) -> None:
    found = case(tmp_path, HANDLER, {0: "12 (main)", 1: INTERRUPTED})
    assert by_own_lock(found) == (
        "the signal handler tick() (job.py:10) wants a lock that rank 1 held already, by `with self.lock` "
        "(line 4 of job.py): only set a flag in a handler"
    )
    called = HANDLER.replace("sort(self.kept)", "self.tick()")
    assert "see whether rank 1 holds that lock itself" in by_own_lock(
        case(tmp_path, called, {0: "12 (main)", 1: INTERRUPTED})
    )


@pytest.mark.parametrize(
    ("limit", "is_reported"), [("1_000_000", True), ("deep", True), ("3000", False)]
)
def test_a_limit_of_recursion_that_is_higher_than_the_stack(
    tmp_path: Path, limit: str, is_reported: bool
) -> None:
    text = f"import sys\nsys.setrecursionlimit({limit})\ndef write(x):\n    pickle.dump(x)\n"
    reported = by_recursion_limit(case(tmp_path, text, {0: "4 (write)", 1: "4 (write)"}))
    expected = (
        f"`sys.setrecursionlimit({limit})` (line 2 of job.py) lets calls go deeper than the C stack holds, "
        "those of pickle, copy and json as well: see how deep the data at job.py:4 go"
    )
    assert reported == (expected if is_reported else "")


LAYERS = """\
class Thaw:
    def __init__(self, layers):
        self.layers = set(layers)
    def trainable(self, epoch):
        return self.layers - self.frozen(epoch)
def average(gradients, names):
    for name in names:
        all_reduce(gradients[name])
def main():
    names = thaw.trainable(3)
    average(gradients, names)
"""
OVER_A_SET = {0: "8 (average) < 11 (main)", 1: "8 (average) < 11 (main)"}


def test_a_loop_over_a_set_with_the_line_that_makes_it(tmp_path: Path) -> None:
    end = "texts in a set have another order in each process: sort it"
    assert by_set_order(case(tmp_path, LAYERS, OVER_A_SET)) == (
        "`for name in names` (line 7 of job.py) goes over a set, made by `self.layers = set(layers)` (line 3 "
        f"of job.py): {end}"
    )
    direct = LAYERS.replace("in names:", "in {'a', 'b'}:")
    assert by_set_order(case(tmp_path, direct, OVER_A_SET)) == (
        f"`for name in {{'a', 'b'}}` (line 7 of job.py) goes over a set: {end}"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("in names:", "in sorted(names):"),
        ("thaw.trainable(3)", "sorted(thaw.trainable(3))"),
        ("set(layers)", "layers"),
        ("    for name in names:\n    ", "    name = names\n    #"),
    ],
)
def test_what_is_sorted_or_no_set_has_one_order(tmp_path: Path, old: str, new: str) -> None:
    assert by_set_order(case(tmp_path, LAYERS.replace(old, new), OVER_A_SET)) == ""


def test_who_lets_a_broken_pipe_end_the_process(tmp_path: Path) -> None:
    text = "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\ndef add(x):\n    pipe.write(x)\n"
    sites = {0: "4 (add)", 1: "4 (add)"}
    assert by_default_of_pipes(case(tmp_path, text, sites)) == (
        "it wrote to a pipe or a socket whose reader had ended; job.py:2 lets SIGPIPE end the process, where "
        "Python raises BrokenPipeError"
    )
    ignored = text.replace("SIG_DFL", "SIG_IGN")
    assert by_default_of_pipes(case(tmp_path, ignored, sites)) == ""


@pytest.mark.parametrize(
    ("removal", "is_reported"),
    [("path.unlink()", True), ("os.remove(path)", True), ("names.remove(path)", False)],
)
def test_the_line_that_may_have_removed_a_file_that_is_read(
    tmp_path: Path, removal: str, is_reported: bool
) -> None:
    text = f"def trim(path):\n    {removal}\ndef read(path):\n    return np.load(path)\n"
    found = case(tmp_path, text, {0: "5 (main)", 1: "4 (read)"})
    found.session.ranks[1].exit_what = "FileNotFoundError: gone"
    reported = (
        f"see whether `{removal}` (line 2 of job.py) has removed it, on any rank, or whether who writes it "
        "had not done so yet"
    )
    assert by_removal(found) == (reported if is_reported else "")
    found.session.ranks[1].exit_what = "ValueError: no"
    assert by_removal(found) == ""
