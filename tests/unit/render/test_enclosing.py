"""What stands around a call in its source, as text alone."""

from __future__ import annotations

import io
import warnings

import pytest
from rich.console import Console

from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.record.format import Status
from distdbg.render.enclosing import (
    CallParameter,
    ParsedSource,
    argument_origin,
    cached,
    enclosing,
    parse,
    short_circuited,
    timers_in,
)
from distdbg.render.html import to_html
from distdbg.render.loop_exits import loop_exits
from distdbg.render.notes import MEETING
from distdbg.render.text import print_verdict
from tests.support.session_builder import SessionBuilder

PROGRAM = """\
def clip(gradient, group=None):
    for part in gradient:
        if norm(part) > CLIP:
            largest = first(part)
            largest = np.array([<b>])
            dist.all_reduce(largest, group=group)
        else:
            dist.barrier()
    largest = None

class Stage:
    def hand_on(self, y, tag):
        dist.send(y, 1, tag=tag)

def main():
    group = rows if odd else cols
    def inner():
        group = other
    clip(
        x,
        group=group,
    )
    mark = of(step)
    stage.hand_on(x, mark)
    stage.hand_on(x, of(step))

if __name__ == "__main__":
    main()
""".replace("<b>", "'<b>'")


@pytest.fixture
def source() -> ParsedSource:
    found = parse(PROGRAM.split("\n"))
    assert found is not None
    return found


def test_conditions_and_loops_are_told_the_innermost_first(source: ParsedSource) -> None:
    condition, loop = "`if norm(part) > CLIP` (line 3)", "in `for part in gradient` (line 2)"
    assert enclosing(source, 6) == [f"under {condition}", loop]
    assert enclosing(source, 8) == [f"under `else` of {condition}", loop]
    assert enclosing(source, 6, 1) == [f"under {condition}"]
    assert enclosing(source, 2) == []  # the loop itself is in none
    assert enclosing(source, 13) == []  # nor does a class count
    assert enclosing(source, 28) == []  # how every script starts


def test_the_lines_that_set_a_timer_are_found_and_not_those_that_cancel_it() -> None:
    source = parse(
        [
            "signal.alarm(limit)",
            "signal.alarm(0)",
            "signal.setitimer(signal.ITIMER_REAL, 2.5)",
            "signal.setitimer(signal.ITIMER_REAL, 0)",
            "alarm()",
            "ring(alarm)",
        ]
    )
    assert source is not None
    assert timers_in(source) == [1, 3]


def test_a_line_is_told_without_its_comment() -> None:
    source = parse(
        [
            'if rank == "#1":  # the others are idle',
            "    for step in range(  # as many as there are",
            "        3",
            "    ):",
            "        dist.barrier()",
        ]
    )
    assert source is not None
    assert enclosing(source, 5) == [
        "in `for step in range(` (line 2)",
        'under `if rank == "#1"` (line 1)',
    ]


def test_a_lock_that_is_held_around_a_line_is_told_and_no_other_with() -> None:
    source = parse(
        [
            "with open(a) as f:",
            "    with self.Cache_Lock, b:",
            "        with c_lock:",
            "            d()",
        ]
    )
    assert source is not None
    assert enclosing(source, 4) == [
        "in `with c_lock` (line 3)",
        "in `with self.Cache_Lock, b` (line 2)",
    ]
    assert enclosing(source, 3) == ["in `with self.Cache_Lock, b` (line 2)"]
    assert enclosing(source, 2) == []


def test_the_last_assignment_before_the_call_is_the_origin(source: ParsedSource) -> None:
    assert argument_origin(source, 6) == "largest = np.array(['<b>']) (line 5)"


def test_a_parameter_is_looked_up_in_the_call_of_the_caller(source: ParsedSource) -> None:
    group = argument_origin(source, 6, MEETING)
    assert group == CallParameter("clip", "group", 1)
    assert argument_origin(source, 19, (), group) == "group = rows if odd else cols (line 16)"
    tag = argument_origin(source, 13, MEETING)
    assert tag == CallParameter("hand_on", "tag", 1)
    assert argument_origin(source, 24, (), tag) == "mark = of(step) (line 23)"
    assert argument_origin(source, 25, (), tag) is None  # no name: the line itself shows it


OVER = """\
class Groups:
    def __init__(self, owner):
        self.owner = {n: hash(n) for n in owner}
        self.twice = 1
        self.twice = 2
    def make(self, rank):
        blocks = sorted(all, key=rank)
        for ranks in blocks:
            dist.new_group(ranks)
        for ranks in blocks:
            blocks = []
            dist.new_group(ranks)
        dist.broadcast(x, src=self.owner[name])
        dist.broadcast(x, src=self.twice)
        for ranks in made():
            dist.new_group(ranks)
"""


def test_what_a_loop_goes_over_and_what_sets_an_attribute_are_origins() -> None:
    source = parse(OVER.split("\n"))
    assert source is not None
    assert argument_origin(source, 9) == "blocks = sorted(all, key=rank) (line 7)"
    assert argument_origin(source, 12) is None  # it is another one from the second round on
    assert argument_origin(source, 13, ("src",)) == (
        "self.owner is set by `self.owner = {n: hash(n) for n in owner}` (line 3)"
    )
    assert argument_origin(source, 14, ("src",)) is None  # any of the two
    assert argument_origin(source, 16) is None  # the loop itself shows it


@pytest.mark.parametrize("line", [-1, 0, 10, 999])
def test_a_line_without_a_call_has_nothing(source: ParsedSource, line: int) -> None:
    assert (enclosing(source, line), argument_origin(source, line)) == ([], None)


@pytest.mark.parametrize(
    "text", ["def f(:", "\0", "x = " + "(" * 500 + ")" * 500, "x = 1\n" * 100_000]
)
def test_what_is_no_python_has_nothing(text: str) -> None:
    assert parse(text.split("\n")) is None


LOOPS = """\
def fit(model):
    for epoch in range(EPOCHS):
        for index in range(CHUNKS):
            points = clean(index)
            if len(points) == 0:
                continue
            try:
                dist.all_reduce(points)
            except Stop:
                break
            if index == 3:
                continue
            while True:
                break
            def inner():
                return 1
        match epoch:
            case 3:
                if patience.exhausted(epoch):
                    return
        return
"""


def test_what_skips_a_call_or_ends_its_loops_is_told() -> None:
    source = parse(LOOPS.split("\n"))
    assert source is not None
    assert loop_exits(source, 8) == [
        "a `continue` under `if len(points) == 0` (line 5) skips this call",
        "a `break` under `except Stop` (line 9) ends the loop (line 3)",
    ]
    assert loop_exits(
        source, 18
    ) == [  # a `break` of another loop says nothing here, nor one at its end
        "a `return` under `if patience.exhausted(epoch)` (line 19) ends the loop (line 2)"
    ]
    assert loop_exits(source, 1) == loop_exits(source, 16) == []


ORIGINS = """\
def f(rank, parts):
    if rank == 0:
        x = load()
    else:
        x = zeros(4)
    dist.broadcast(x, src=0)
    y = zeros(4)
    for y in parts:
        dist.all_reduce(y)
    z = start()
    for step in parts:
        dist.all_reduce(z)
        z = step(z)
    w = 1
    if rank:
        w = w + 1
    dist.all_reduce(w)
    to, what = nxt(), made()
    dist.send(what, to)
    seen = 1
    record(seen, dist.all_reduce(loss))
    loss = 2
"""


@pytest.mark.parametrize("line", [6, 9, 12, 17])
def test_an_assignment_that_may_not_have_run_is_none(line: int) -> None:
    source = parse(ORIGINS.split("\n"))
    assert source is not None
    assert argument_origin(source, line) is None


def test_the_second_argument_names_the_peer_and_the_op_is_the_call_that_counts() -> None:
    source = parse(ORIGINS.split("\n"))
    assert source is not None
    assert argument_origin(source, 19, MEETING) == "to, what = nxt(), made() (line 18)"
    assert argument_origin(source, 21) is None  # `loss`, and not the argument of record()


RETURNS = """\
class Reach:
    def column(self, puffs):
        if empty(puffs):
            return np.zeros(8)
        return mass.astype(np.float32)
    def __call__(self): return 1
def twice(): return 1
def main():
    all_reduce(reach.column(puffs))
    all_reduce(np.asarray(puffs))
    all_reduce(unknown(puffs))
    all_reduce(twice())
if x:
    def twice(): return 2
"""


def test_what_a_function_of_the_file_returns_is_the_origin() -> None:
    source = parse(RETURNS.split("\n"))
    assert source is not None
    assert argument_origin(source, 9) == (
        "from column(): `return np.zeros(8)` (line 4) or `return mass.astype(np.float32)` (line 5)"
    )
    for line in (10, 11, 12):  # a global, a function of another file, one of two
        assert argument_origin(source, line) is None


CACHED = """\
@functools.lru_cache(maxsize=None)
def share(rows):
    all_reduce(total)
@timed
def fit():
    all_reduce(slope)
"""


SHORT = """\
if self.steep() or self.vote():
    shrink()
while busy and not (late or all_reduce(x)):
    pass
vote(steep() or other())
"""


def test_a_call_that_another_part_of_a_condition_may_leave_out_is_told() -> None:
    source = parse(SHORT.split("\n"))
    assert source is not None
    said = "behind `or` in `if self.steep() or self.vote()` (line 1)"
    assert short_circuited(source, 1, "vote") == said
    assert short_circuited(source, 1, "steep") == ""  # made in any case
    assert short_circuited(source, 3).startswith("behind `and` in ")
    assert short_circuited(source, 5, "vote") == ""
    assert short_circuited(source, 5, "other") != ""
    assert short_circuited(source, 99, "vote") == ""


def test_a_cache_around_a_call_is_told() -> None:
    source = parse(CACHED.split("\n"))
    assert source is not None
    assert cached(source, 3) == (
        "`@functools.lru_cache(maxsize=None)` (line 1) skips this call for arguments that it knows"
    )
    assert cached(source, 6) == ""
    assert cached(source, 99) == ""


def test_a_condition_in_the_line_of_the_call_is_not_told_again() -> None:
    source = parse(["for step in steps:", "    if rank == 1: load()"])
    assert source is not None
    assert enclosing(source, 2) == ["in `for step in steps` (line 1)"]


@pytest.mark.parametrize(
    ("call", "origin"),
    [
        ("all_gather(parts, np.ascontiguousarray(rows))", "rows = x[:n] (line 2)"),
        ("all_gather_into_tensor(parts, rows.contiguous())", "rows = x[:n] (line 2)"),
        ("reduce_scatter(parts, rows)", "rows = x[:n] (line 2)"),
        ("all_reduce(parts)", "parts = empty() (line 3)"),
        ("all_reduce(rows + 1)", None),
    ],
)
def test_what_a_rank_gives_is_looked_at_and_not_where_it_gets(
    call: str, origin: str | None
) -> None:
    source = parse(["def f(x, n):", "    rows = x[:n]", "    parts = empty()", f"    dist.{call}"])
    assert source is not None
    assert argument_origin(source, 4) == origin


def test_a_call_within_a_condition_is_not_under_it_and_other_branches_do_not_skip_it() -> None:
    source = parse(["if (a and", "    f(b)):", "    pass"])
    assert source is not None
    assert enclosing(source, 2) == []
    lines = ["def f(k):", "    for x in k:", "        if k == 1:", "            if not x:"]
    lines += ["                continue", "        else:", "            dist.all_reduce(x)"]
    source = parse(lines)
    assert source is not None
    assert loop_exits(source, 7) == []


def test_a_return_before_the_call_skips_it() -> None:
    lines = [
        "def f(path):",
        "    if path.exists():",
        "        return read(path)",
        "    dist.broadcast(a)",
    ]
    source = parse([*lines, "    if a:", "        return 1"])
    assert source is not None
    assert loop_exits(source, 4) == ["a `return` under `if path.exists()` (line 2) skips this call"]


def test_what_python_warns_of_in_a_program_is_not_printed_for_its_reader() -> None:
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        assert parse(["x = '\\d'"]) is not None
    assert reported == []


def test_long_expressions_are_no_trouble() -> None:
    long = parse(["f(x)" + " + f(x)" * 800])
    assert long is None or argument_origin(long, 1) is None


def test_long_lines_are_cut_and_made_printable() -> None:
    source = parse([f"if '\x1b{'y' * 300}':", "    f(x)"])
    assert source is not None
    [note] = enclosing(source, 2)
    assert note.isprintable()
    assert len(note) < 120


def test_both_forms_show_it_of_the_cause_and_escaped(tmp_path) -> None:
    file = tmp_path / "x.py"
    file.write_text(PROGRAM)
    build = SessionBuilder(3)
    build.session.now_ns = 2 * 10**18
    for log in build.session.ranks.values():
        log.began_ns = 2 * 10**18  # long after the file was written
    for rank in range(3):
        line = 6 if rank == 1 else 8
        build.op(rank, "all_reduce", at_s=2e9, ended_s=2e9 + 1, status=Status.MISMATCH,
                 site=f"{file}:{line} (clip) < {file}:19 (main)")  # fmt: skip
    root = Finding(kind=FindingKind.MISMATCH, severity=Severity.ERROR, what="they differ", ranks=(1,),
                   victims=(0, 2))  # fmt: skip
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={})
    out = io.StringIO()
    print_verdict(Console(file=out, width=120), build.session, verdict, folder=str(tmp_path))
    assert out.getvalue().count("under `if norm(part) > CLIP` (line 3)") == 1
    assert out.getvalue().count("largest = np.array(['<b>']) (line 5)") == 1
    assert "under `else` of `if norm(part) > CLIP`" in out.getvalue()
    page = to_html(build.session, verdict, folder=str(tmp_path))
    assert "under `if norm(part) &gt; CLIP` (line 3)" in page
    assert "['<b>']" not in page
