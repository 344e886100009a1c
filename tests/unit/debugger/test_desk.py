from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from distdbg.debugger.desk import PromptExpired, PromptInput, TypedLine


def ask(desk: PromptInput, *, limit_s: float = 5.0, stays: bool = True) -> str | None:
    return desk.ask(
        "(Pdb) ",
        time.monotonic() + limit_s,
        complete=lambda text, line, begin, end: [text + "!"],
        greet=lambda: desk.write("here\n"),
        check=lambda: stays,
    )


def test_a_line_is_the_answer_and_what_came_before_it_is_done_first() -> None:
    desk, said = PromptInput(3, "run"), list[dict[str, Any]]()
    desk.attach("eva", said.append)
    desk.put_completion("pr", "pr", 0, 2)
    desk.put(TypedLine("p x"))
    assert ask(desk) == "p x"
    assert {"completions": ["pr!"]} in said


def test_a_completion_is_not_begun_for_a_client_that_has_left_or_interrupted() -> None:
    desk, said, wanted = PromptInput(3, "run"), list[dict[str, Any]](), list[bool]()

    def complete(text: str, line: str, begin: int, end: int) -> list[str]:
        wanted.append(desk.is_completion_wanted)
        return []

    desk.attach("eva", said.append)
    desk.put_completion("a", "a", 0, 1)
    desk.leave()
    desk.attach("eva", said.append)
    desk.put_completion("b", "b", 0, 1)
    desk.give_up_completions()
    desk.put_completion("c", "c", 0, 1)
    desk.put(TypedLine("p x"))
    deadline = time.monotonic() + 120
    assert desk.ask("", deadline, complete=complete, greet=lambda: None, check=lambda: True)
    assert wanted == [False, False, True]
    assert [words for words in said if "completions" in words] == [{"completions": []}]


def test_who_comes_is_shown_where_the_rank_is_and_once() -> None:
    desk, said = PromptInput(3, "run"), list[dict[str, Any]]()
    desk.begin("a breakpoint", "train.py:88 (step)")
    desk.attach("eva", said.append)
    desk.put(TypedLine("n"))
    assert ask(desk) == "n"
    assert [next(iter(words)) for words in said] == ["stopped", "write", "prompt"]
    desk.put(TypedLine("n"))
    assert ask(desk) == "n"
    assert [next(iter(words)) for words in said[3:]] == ["prompt"]


def test_what_is_printed_without_a_client_goes_nowhere() -> None:
    desk = PromptInput(3, "run")
    desk.write("lost\n")
    desk.put(TypedLine("c"))
    assert ask(desk) == "c"


def test_nobody_in_time_and_nobody_to_wait_for_are_two_things() -> None:
    desk = PromptInput(3, "run")
    with pytest.raises(PromptExpired):
        ask(desk, limit_s=0.05)
    assert ask(desk, stays=False) is None
    with pytest.raises(PromptExpired):
        desk.await_client(time.monotonic() + 0.05, lambda: True)
    assert not desk.await_client(time.monotonic() + 5, lambda: False)


def test_a_client_from_another_thread_is_waited_for() -> None:
    desk = PromptInput(3, "run")
    thread = threading.Thread(target=lambda: desk.attach("eva", lambda words: None))
    thread.start()
    assert desk.await_client(time.monotonic() + 5, lambda: True)
    thread.join()


def test_news_come_while_a_line_is_awaited() -> None:
    desk, said = PromptInput(3, "run"), list[dict[str, Any]]()
    desk.attach("eva", said.append)

    def check() -> bool:
        if not any("notice" in words for words in said):
            desk.notify("*** rank 2 was killed by SIGKILL 0.8 s ago\n")
            desk.put(TypedLine("n"))
        return True

    deadline = time.monotonic() + 120
    assert desk.ask("", deadline, complete=lambda *_: [], greet=lambda: None, check=check) == "n"
    assert {"notice": "*** rank 2 was killed by SIGKILL 0.8 s ago\n"} in said
