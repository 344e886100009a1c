"""Any arguments of any public function: the call is right, or a UsageError before anything is sent.

Each example calls one function on two ranks with the same arguments, of which some may be nonsense. A rank
that raises leaves, so that the other ends with RankLeft where it had begun the op.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distdbg as dist
from distdbg.errors import DivergedError, MismatchError, PeerLost, RankLeft, UsageError
from tests.support.store_ranks import run_store_ranks
from tests.unit.runtime.argument_values import VALUES, Maker, just

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

#: Of each function; `make stress` has more. Each run has others.
EXAMPLES = int(os.environ.get("STRESS_ARGUMENTS", "4"))
ALONE = {
    "breakpoint": "tests/debugger",
    "init_process_group": "tests/unit/rendezvous",
    "destroy_process_group": "it is called after each example",
    "spawn": "tests/ranks/test_spawn.py",
    "start_processes": "tests/ranks/test_spawn.py",
    "run_threads": "tests/unit/test_run_threads.py",
    "rendezvous": "tests/unit/rendezvous",
    "register_rendezvous_handler": "it is the process's",
    "record_comm": "a context manager, in tests/ranks/test_marks.py",
    "_coalescing_manager": "a context manager, in tests/unit/runtime/test_collectives.py",
    "batch_isend_irecv": "its ops are checked where they are made",
    "register_ddp_comm_hook": "it is a model's, in tests/torch/test_data_parallel.py",
    "import_module": "Python's",
    "init_device_mesh": "tests/parity/test_mesh.py",
    "empty": "tests/ranks/test_shared_arrays.py: the first one opens a file of the process",
    "zeros": "the same",
}
#: Where ranks may be asked for different things, or have them.
MAY_DIFFER = {"send", "isend", "send_object_list", "assert_same"}
DIFFER = (MismatchError, DivergedError)
#: What rank 1 calls where rank 0 calls this.
ANSWERS = {"send": "recv", "isend": "irecv", "send_object_list": "recv_object_list"}
#: How a rank may call itself.
SELVES = ({"0"}, {"1", "True", "np.int64(1)"})
FUNCTIONS = sorted(
    name
    for name in dir(dist)
    if name != "DistributedDataParallel"  # it imports torch
    if inspect.isfunction(getattr(dist, name)) and not name.startswith("__") and name not in ALONE
)
CALLED = [
    name
    for name in FUNCTIONS
    if name not in ANSWERS.values() and inspect.signature(getattr(dist, name)).parameters
]


@dataclass
class Outcome:
    """How a call ended on one rank."""

    arguments: dict[str, Any]
    result: Any = None
    error: BaseException | None = None


@st.composite
def calls(draw: st.DrawFn, name: str) -> dict[str, dict[str, tuple[str, Maker]]]:
    """The arguments of a function, and of the one that answers it, by their names."""
    chosen = {}
    for function in [name, ANSWERS.get(name, name)]:
        taken = {}
        for parameter in inspect.signature(getattr(dist, function)).parameters.values():
            if parameter.name in ("pg_options", "device_id"):
                continue
            values = VALUES[parameter.name]
            is_optional = parameter.default is not inspect.Parameter.empty
            if is_optional and draw(st.integers(0, 2)) < 2:
                continue
            label = draw(st.one_of(st.just(next(iter(values))), st.sampled_from(sorted(values))))
            taken[parameter.name] = (label, values[label])
        chosen[function] = taken
    if name in ANSWERS:
        # Nobody has to answer what is sent to oneself: another thread might.
        sent, received = chosen[name], chosen[ANSWERS[name]]
        _set_peer(sent, "dst", 0)
        _set_peer(received, "src", 1)
        for shared in ("tag", "group"):
            received.pop(shared, None)
            if shared in sent:
                received[shared] = sent[shared]
    return chosen


def _set_peer(taken: dict[str, tuple[str, Maker]], name: str, me: int) -> None:
    for key in (name, f"group_{name}"):
        if key in taken and taken[key][0] in SELVES[me]:
            taken.pop(key)
    if f"group_{name}" not in taken:
        taken.setdefault(name, (str(1 - me), just(1 - me)))


def call(chosen: dict[str, dict[str, tuple[str, Maker]]], rank: int) -> Outcome:
    name = list(chosen)[rank if len(chosen) == 2 else 0]
    arguments = {key: make(rank) for key, (_, make) in chosen[name].items()}
    try:
        result = getattr(dist, name)(**arguments)
        if isinstance(result, dist.Work):
            result.wait()
    except (
        UsageError,
        RankLeft,
        PeerLost,
        MismatchError,
        DivergedError,
        dist.DistBackendError,
    ) as error:
        return Outcome(arguments, error=error)
    return Outcome(arguments, result)


def is_right(chosen: dict[str, dict[str, tuple[str, Maker]]], outcomes: list[Outcome]) -> bool:
    """Whether the ranks have what NumPy computes, for the ops where that is a line."""
    taken = next(iter(chosen.values()))
    labels = {key: label for key, (label, _) in taken.items()}
    made = [{key: make(rank) for key, (_, make) in taken.items()} for rank in range(2)]
    mine = [outcome.arguments for outcome in outcomes]
    if labels.get("group") == "NON_GROUP_MEMBER":
        return True
    match next(iter(chosen)), labels.get("op", "SUM"):
        case "all_reduce", ("SUM" | "MAX") as op:
            tensors = [plain(each["tensor"]) for each in made]
            want = tensors[0] + tensors[1] if op == "SUM" else np.maximum(*tensors)
            return all(np.array_equal(plain(each["tensor"]), want) for each in mine)
        case "broadcast", _:
            root = made[0].get("group_src", made[0].get("src"))
            want = plain(made[root]["tensor"])
            return all(np.array_equal(plain(each["tensor"]), want) for each in mine)
        case "all_gather", _:
            want = np.stack([plain(each["tensor"]) for each in made])
            return all(
                np.array_equal(np.stack([plain(x) for x in each["tensor_list"]]), want)
                for each in mine
            )
        case "send", _:
            return np.array_equal(plain(mine[1]["tensor"]), plain(made[0]["tensor"]))
    return True


def plain(x: Any) -> Any:
    """The elements in order: shapes that hold as many may differ."""
    return np.ravel(memoryview(x) if isinstance(x, (bytes, bytearray)) else x)


def works_still(rank: int) -> None:
    x = np.full(3, rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3


@pytest.mark.parametrize("name", CALLED)
def test_any_arguments_are_right_or_refused_before_anything_is_sent(name: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(calls(name))
    def check(chosen: dict[str, dict[str, tuple[str, Maker]]]) -> None:
        outcomes = run_store_ranks(lambda rank: call(chosen, rank), 2, backend="gloo")
        errors = [outcome.error for outcome in outcomes]
        if not any(errors):
            assert is_right(chosen, outcomes), outcomes
            return
        if all(isinstance(error, dist.DistBackendError) for error in errors):
            return
        if name in MAY_DIFFER and all(isinstance(error, DIFFER) for error in errors):
            return
        assert any(isinstance(error, UsageError) for error in errors), errors
        if all(isinstance(error, UsageError) for error in errors):

            def refused_and_on(rank: int) -> None:
                assert isinstance(call(chosen, rank).error, UsageError)
                works_still(rank)

            run_store_ranks(refused_and_on, 2, backend="gloo")

    check()
