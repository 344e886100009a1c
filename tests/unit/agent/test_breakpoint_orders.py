"""Breakpoints at an agent: how they are numbered, added and cleared, and ranks told to go on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.agent.breakpoint_orders import IDS_PER_HOST, Breakpoints, continue_ranks, without_rule
from distdbg.client.protocol import Request
from distdbg.control import sockets
from distdbg.control.breakpoints import parse_rules
from distdbg.errors import UsageError


class Steering:
    """The page of one host; of a job of several it is written later."""

    def __init__(self, node: int = 0, *, is_slow: bool = False) -> None:
        self.node = node
        self.is_slow = is_slow
        self.page = b""
        self.has_tree = False

    def rules(self) -> bytes:
        return self.page

    def order(self, do: str, words: Any = None) -> dict[str, Any]:
        if not self.is_slow:
            self.page = json.dumps(words).encode() if do == "arm" else b""
        return {}


class Agent:
    def __init__(self, steering: Steering, world_size: int = 0) -> None:
        self.steering = steering
        self.roster: Any = SimpleNamespace(world_size=world_size)


def breakpoints(node: int = 0, *, is_slow: bool = False) -> Breakpoints:
    return Breakpoints(Agent(Steering(node, is_slow=is_slow)))  # type: ignore[arg-type]  # all it asks


def ids(one: Breakpoints) -> list[int]:
    return [rule["id"] for rule in one.plain(())["rules"]]


def test_a_number_is_given_once() -> None:
    one = breakpoints()
    assert one.arm({"rule": "rank=0"}) == {"id": 1, "rule": "rank=0"}
    assert one.arm({"rule": "on = nan"})["id"] == 2
    assert one.clear({"breakpoint": 2}) == {"cleared": [2]}
    assert one.arm({"rule": "rank=1"})["id"] == 3
    assert ids(one) == [1, 3]
    assert one.clear({}) == {"cleared": [1, 3]}
    assert one.clear({}) == {"cleared": []}


def test_agents_of_two_hosts_never_give_the_same_number() -> None:
    first, second = breakpoints(0), breakpoints(1)
    assert first.arm({"rule": "rank=0"})["id"] == 1
    assert second.arm({"rule": "rank=0"})["id"] == IDS_PER_HOST + 1
    assert second.arm({"rule": "rank=1"})["id"] == IDS_PER_HOST + 2


def test_what_was_ordered_counts_before_the_page_has_it() -> None:
    one = breakpoints(is_slow=True)
    one.arm({"rule": "rank=0"})
    one.arm({"rule": "rank=1"})
    assert ids(one) == [1, 2]


@pytest.mark.parametrize("rule", [None, 3, "", "rnk=3", "kind=al_reduce"])
def test_what_is_no_rule_arms_nothing(rule: object) -> None:
    one = breakpoints()
    with pytest.raises(UsageError):
        one.arm({"rule": rule})
    assert ids(one) == []


def test_a_rule_for_ranks_that_are_not_there_is_refused() -> None:
    steering = Steering()
    one = Breakpoints(Agent(steering, world_size=4))  # type: ignore[arg-type]  # all it asks
    with pytest.raises(UsageError, match="no rank fits the rule rank=9: the job has ranks 0-3"):
        one.arm({"rule": "rank=9"})
    assert steering.page == b""
    assert one.arm({"rule": "rank=3|9"})["id"] == 1
    assert one.arm({"rule": "rank!=0,kind=send"})["id"] == 2


def test_clearing_what_is_not_there_says_what_is() -> None:
    rules = parse_rules("rank=0;rank=1;rank=2")
    with pytest.raises(UsageError, match="there is no breakpoint 7") as caught:
        without_rule(rules, 7)
    assert caught.value.hint == "there are 1-3"
    with pytest.raises(UsageError, match="is a number"):
        without_rule(rules, "1")
    with pytest.raises(UsageError) as caught:
        without_rule((), 1)
    assert caught.value.hint == "none is armed"
    assert [rule.id for rule in without_rule(rules, 2)] == [1, 3]


def test_rows_in_the_debugger_are_those_that_are_stopped() -> None:
    row = {"rank": 3, "host": "n14", "why": "breakpoint", "site": "a.py:1 (f)", "state_age_s": 2.0}
    rows = [{**row, "state": "in the debugger"}, {**row, "rank": 4, "state": "running"}]
    [stopped] = breakpoints().plain(rows)["stopped"]
    assert stopped == {
        "rank": 3, "host": "n14", "why": "breakpoint", "site": "a.py:1 (f)", "since_s": 2.0
    }  # fmt: skip


# ------------------------------------------------------------------------------ ranks at prompts


class Prompt:
    """The socket of a rank; says what it is told to."""

    def __init__(self, folder: Path, rank: int, *said: object) -> None:
        self._socket = sockets.listen(folder / f"debug-rank{rank}.sock")
        self._socket.setblocking(True)
        self._said = said
        self.heard = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client:
            for words in self._said:
                client.sendall(json.dumps(words).encode() + b"\n")
            client.shutdown(socket.SHUT_WR)
            while data := client.recv(4096):
                self.heard += data

    def join(self) -> None:
        """Until the client has closed its end."""
        self._thread.join(30)

    def close(self) -> None:
        self.join()
        self._socket.close()


HELLO = {"distdbg": "debugger", "protocol": 1, "rank": 0, "state": "stopped"}


@pytest.fixture
def prompts(tmp_path: Path) -> Iterator[list[Prompt]]:
    prompts: list[Prompt] = []
    yield prompts
    for prompt in prompts:
        prompt.close()


def test_ranks_at_prompts_go_on_and_others_say_why_not(
    tmp_path: Path, prompts: list[Prompt]
) -> None:
    prompts.append(Prompt(tmp_path, 0, HELLO, {"write": "x"}, {"running": True}))
    prompts.append(Prompt(tmp_path, 1, {**HELLO, "state": "running"}))
    prompts.append(Prompt(tmp_path, 2, HELLO, {"error": "it is busy"}))
    refused = {"ended": "its debugger is shown elsewhere", "refused": True}
    prompts.append(Prompt(tmp_path, 4, HELLO, refused))
    found = {one.rank: one.why_not for one in continue_ranks(tmp_path, range(5))}
    assert found == {
        0: "",
        1: "rank 1 is not stopped",
        2: "it is busy",
        3: "rank 3 is not in a debugger",
        4: "its debugger is shown elsewhere",
    }
    for prompt in prompts:
        prompt.join()
    assert json.loads(prompts[0].heard) == {"continue": True}
    assert prompts[1].heard == b""


class Roster:
    """Of an agent that has looked at no rank yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watched_ranks: dict[int, Any] = {}
        self.world_size = 0


class JustStarted(Agent):
    """An agent whose rows are older than what ranks do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Steering())
        self.roster = Roster(folder)

    def run_in_thread(self, do: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        done: Future[Any] = Future()
        done.set_result(do())
        then(done)


class Asker:
    """Who has asked."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def send(self, line: bytes) -> None:
        self.answers.append(line)


def test_all_go_on_that_are_stopped_also_before_the_agent_has_seen_it(
    tmp_path: Path, prompts: list[Prompt]
) -> None:
    prompts.append(Prompt(tmp_path, 0, HELLO, {"running": True}))
    prompts.append(Prompt(tmp_path, 1, {**HELLO, "state": "running"}))
    asked = Asker()
    row = {"rank": 0, "state": "running"}
    request = Request(1, "continue")
    Breakpoints(JustStarted(tmp_path)).continue_requested(request, asked, [row])  # type: ignore[arg-type]  # all it asks
    [answer] = asked.answers
    assert json.loads(answer)["ok"] == {"ranks": [0], "failed": []}
    for prompt in prompts:
        prompt.join()
    assert json.loads(prompts[0].heard) == {"continue": True}


def test_a_stopped_rank_of_another_host_in_a_shared_folder_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "debug-rank5.sock").touch()
    asked, agent = Asker(), JustStarted(tmp_path)
    agent.steering.has_tree = True
    row = {"rank": 5, "state": "in the debugger"}
    Breakpoints(agent).continue_requested(Request(1, "continue"), asked, [row])  # type: ignore[arg-type]  # all it asks
    [answer] = asked.answers
    assert json.loads(answer)["ok"] == {"ranks": [5], "failed": []}
