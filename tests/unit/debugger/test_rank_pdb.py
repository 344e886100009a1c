"""pdb as ranks have it, with lines that are typed ahead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from distdbg.debugger.frames import site_at, site_of, stop_place, user_frame
from distdbg.debugger.rank_pdb import RankPdb


class Typed:
    """A console of a test: the lines, and what was shown."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.shown = ""
        self.prompts: list[str] = []

    def ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self.lines.pop(0) if self.lines else None

    def write(self, text: str) -> None:
        self.shown += text


def debug(
    typed: Typed, body: Callable[[Callable[[], None]], Any], *, has_keyboard: bool = False
) -> Any:
    """Run `body`, which is debugged from where it calls its argument on."""
    pdb = RankPdb(typed.ask, typed.write)
    pdb.has_keyboard = lambda: has_keyboard
    before = sys.gettrace()

    def stop() -> None:
        frame = sys._getframe(1)
        sys.settrace(None)
        pdb.prepare(frame)
        pdb.prompt_at(frame, None)
        if pdb.is_tracing_needed:
            pdb.start_tracing(frame)

    try:
        return body(stop)
    finally:
        pdb.stop_tracing(sys._getframe())
        sys.settrace(before)


def test_assignments_at_the_first_prompt_stay() -> None:
    def body(stop: Callable[[], None]) -> list[int]:
        x, y = 1, 2

        def inner() -> int:
            return y

        stop()
        return [x, inner()]

    assert debug(Typed("x = 10", "!y = 20", "c"), body) == [10, 20]


class Interrupted(Typed):
    """Ctrl-C comes when the place of a stop has been shown, and not yet the prompt."""

    def write(self, text: str) -> None:
        super().write(text)
        if self.shown.count("-> ") == 1 and text.endswith("stop()\n"):
            raise KeyboardInterrupt


def test_ctrl_c_of_who_sees_the_place_does_not_end_the_rank() -> None:
    def body(stop: Callable[[], None]) -> int:
        x = 1
        stop()
        return x

    typed = Interrupted("x = 3", "c")
    assert debug(typed, body, has_keyboard=True) == 3
    assert typed.shown.count("--KeyboardInterrupt--\n") == 1
    assert typed.prompts == ["(Pdb) "] * 2
    with pytest.raises(KeyboardInterrupt):  # nobody is at its keyboard: it is for the rank
        debug(Interrupted("c"), body)


def test_assignments_after_a_step_stay() -> None:
    def body(stop: Callable[[], None]) -> int:
        x = 1
        stop()
        x += 1
        return x

    typed = Typed("n", "x = 5", "c")
    assert debug(typed, body) == 6
    assert typed.shown.count("-> ") == 2
    assert "-> x += 1" in typed.shown


def test_a_statement_over_lines_ends_with_an_empty_one() -> None:
    def body(stop: Callable[[], None]) -> None:
        stop()

    typed = Typed("for i in range(3):", "  print('number', i)", "", "c")
    debug(typed, body)
    assert "number 0\nnumber 1\nnumber 2\n" in typed.shown
    assert typed.prompts == ["(Pdb) ", "...   ", "...   ", "(Pdb) "]


def test_what_is_printed_by_a_statement_goes_to_the_prompt_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def body(stop: Callable[[], None]) -> None:
        stop()
        print("the program")

    typed = Typed("print('the user')", "import sys; sys.stderr.write('an error\\n')", "[1, 2]", "c")
    debug(typed, body)
    assert "the user\nan error\n9\n[1, 2]\n" in typed.shown
    assert capsys.readouterr() == ("the program\n", "")


def test_input_at_the_prompt_asks_the_client() -> None:
    def body(stop: Callable[[], None]) -> str:
        name = ""
        stop()
        return name

    typed = Typed("name = input('who? ')", "eva", "c")
    assert debug(typed, body) == "eva"
    assert "who? " in typed.prompts


def test_what_a_statement_raises_is_shown_and_the_prompt_goes_on() -> None:
    def body(stop: Callable[[], None]) -> None:
        stop()

    typed = Typed("1 / 0", "raise SystemExit(3)", "def", "c")
    debug(typed, body)
    for text in ("*** ZeroDivisionError: division by zero", "*** SystemExit: 3", "*** SyntaxError"):
        assert text in typed.shown


def test_the_end_of_the_input_goes_on() -> None:
    assert debug(Typed(), lambda stop: stop() or "went on") == "went on"


def test_a_breakpoint_is_met_and_then_nothing_is_traced() -> None:
    def body(stop: Callable[[], None]) -> Any:
        stop()
        total = 0
        for i in range(5):
            total += i
        return total

    line = body.__code__.co_firstlineno + 4
    typed = Typed(f"b {line}, i == 3", "c", "p total", "cl 1", "c")
    assert debug(typed, body) == 10
    assert "\n3\n" in typed.shown
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_steps_do_not_go_into_this_package_nor_what_it_calls() -> None:
    from distdbg.record.rank_list import read_ranks

    def body(stop: Callable[[], None]) -> list[int]:
        stop()
        ranks = read_ranks("0-1")
        ranks.append(7)
        return ranks

    typed = Typed("s", "s", "p ranks", "c")
    assert debug(typed, body) == [0, 1, 7]
    assert "[0, 1]\n" in typed.shown


def test_steps_go_into_the_users_functions_and_out_again() -> None:
    def called(x: int) -> int:
        return x + 1

    def body(stop: Callable[[], None]) -> int:
        stop()
        y = called(1)
        y += 1
        return y

    typed = Typed("s", "s", "s", "p x", "r", "n", "p y", "c")
    assert debug(typed, body) == 3
    assert "--Call--" in typed.shown
    assert "--Return--" in typed.shown


def test_interact_knows_the_names_of_the_frame() -> None:
    def body(stop: Callable[[], None]) -> None:
        secret = 41  # noqa: F841 - seen by the debugger
        stop()

    typed = Typed("interact", "secret + 1", "EOF", "c")
    debug(typed, body)
    assert "42\n" in typed.shown
    assert ">>> " in typed.prompts


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("conti", {"continue"}),
        ("p loc", {"local_name"}),
        ("p local_name.upp", {"local_name.upper"}),
        ("loc", {"local_name"}),
        ("p local_name.nothing", set()),
    ],
)
def test_commands_names_and_attributes_are_completed(line: str, found: set[str]) -> None:
    seen: set[str] = set()

    def body(stop: Callable[[], None]) -> None:
        local_name = "x"  # noqa: F841 - seen by the debugger
        stop()

    class Completing(Typed):
        def ask(self, prompt: str) -> str | None:
            text = line.split()[-1]
            seen.update(pdb.complete_line(text, line, len(line) - len(text), len(line)))
            return "c"

    typed = Completing()
    pdb = RankPdb(typed.ask, typed.write)

    def stop() -> None:
        pdb.prepare(sys._getframe(1))
        pdb.prompt_at(sys._getframe(1), None)

    before = sys.gettrace()
    sys.settrace(None)
    try:
        body(stop)
    finally:
        sys.settrace(before)
    assert found <= seen
    assert found or not seen


def test_a_completion_that_nobody_waits_for_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = Typed()
    pdb = RankPdb(typed.ask, typed.write)
    monkeypatch.setattr(pdb, "_find", lambda *_: ["continue"])
    assert pdb.complete_line("conti", "conti", 0, 5) == ["continue"]
    states: list[bool] = []
    pdb.is_completion_wanted = lambda: bool(states.append(pdb.is_executing))
    assert pdb.complete_line("conti", "conti", 0, 5) == []
    assert states == [True]  # asked when it can be broken off, so that none is missed


def test_the_users_frame_is_the_innermost_that_is_not_ours() -> None:
    frame = user_frame(sys._getframe(0))
    assert frame is sys._getframe(0)
    assert site_of(frame).startswith("test_rank_pdb.py:")


def test_the_site_of_an_exception_is_where_the_user_called_what_raised() -> None:
    from distdbg.record.rank_list import read_ranks

    try:
        read_ranks("x")
    except ValueError as error:
        trace = error.__traceback__
    site = site_at(*stop_place(sys._getframe(0), trace))
    assert site.endswith("(test_the_site_of_an_exception_is_where_the_user_called_what_raised)")


@pytest.mark.parametrize("go", ["n", "unt"])
def test_at_the_end_of_a_function_the_next_line_is_the_callers(go: str) -> None:
    def inner(stop: Callable[[], None]) -> int:
        stop()
        return 1

    def body(stop: Callable[[], None]) -> int:
        x = inner(stop)
        x += 1
        return x

    typed = Typed("n", "n", go, "x = 5", "c")
    assert debug(typed, body) == 6
    assert "->1" in typed.shown
    assert "-> x += 1" in typed.shown
