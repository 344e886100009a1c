"""Public names and parameters against torch.distributed's, kept as facts in torch_api.json.

docs/reference/parity.md is the list of what is absent: read here, so page and code cannot drift.
"""

from __future__ import annotations

import inspect
import json
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import distdbg as dist

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FACTS: dict[str, Any] = json.loads((HERE / "torch_api.json").read_text())
PAGE = ROOT / "docs" / "reference" / "parity.md"
ABSENT = set(re.findall(r"^\| `([\w.]+)` \| \S", PAGE.read_text(), re.MULTILINE))
NAMES = [*FACTS["functions"], *FACTS["classes"], *FACTS["values"]]

#: These have one more parameter here, behind torch's: the limit of the one op.
LIMITED = {
    "_all_gather_base", "_coalescing_manager", "_reduce_scatter_base", "all_gather",
    "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
    "gather", "irecv", "isend", "recv", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "send",
}  # fmt: skip


def parameters(function: object) -> list[list[str]]:
    """[[name], [name, default], ...], without self."""
    found = []
    for parameter in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if parameter.name == "self":
            continue
        if parameter.default is inspect.Parameter.empty:
            found.append([parameter.name])
        elif isinstance(parameter.default, dist.ReduceOp):
            found.append([parameter.name, f"ReduceOp.{parameter.default.op.name}"])
        else:
            found.append([parameter.name, repr(parameter.default)])
    return found


def test_the_page_lists_names_of_torch_only() -> None:
    known = set(NAMES) | {f"{c}.{m}" for c, members in FACTS["classes"].items() for m in members}
    assert ABSENT
    assert known >= ABSENT


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_here_or_on_the_page(name: str) -> None:
    assert hasattr(dist, name) != (name in ABSENT)


@pytest.mark.parametrize("name", sorted(set(FACTS["functions"]) - ABSENT))
def test_a_function_has_torchs_parameters_and_defaults(name: str) -> None:
    ours = parameters(getattr(dist, name))
    if name in LIMITED:
        assert ours.pop() == ["timeout", "None"]
    assert ours == FACTS["functions"][name]


@pytest.mark.parametrize("name", sorted(set(FACTS["classes"]) - ABSENT))
def test_a_class_has_torchs_members(name: str) -> None:
    cls = getattr(dist, name)
    for member, expected in FACTS["classes"][name].items():
        is_here = hasattr(cls, member) or (name.endswith("Options") and hasattr(cls(), member))
        if not is_here:
            is_here = member in instance_attributes(cls)
        if not is_here and issubclass(cls, Enum):
            is_here = hasattr(next(iter(cls)), member)
        assert is_here != (f"{name}.{member}" in ABSENT), member
        if is_here and expected is not None:
            ours = [parameter[0] for parameter in parameters(getattr(cls, member))]
            assert ours[: len(expected)] == expected, member


def instance_attributes(cls: type) -> set[str]:
    """Names that the class's methods set on self."""
    source = inspect.getsource(cls)
    return set(re.findall(r"self\.(\w+)\s*(?::[^=\n]+)?=", source))


def test_all_public_names_can_be_loaded() -> None:
    assert set(dist.__all__) <= set(dir(dist))
    for name in dist.__all__:
        assert getattr(dist, name) is not None or name == "default_pg_timeout"
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(dist, "no_such_name")  # noqa: B009 - mypy would see the attribute


def test_scripts_that_import_from_torchs_modules_find_the_names_there() -> None:
    from distdbg import distributed_c10d, multiprocessing
    from distdbg.distributed_c10d import ReduceOp

    assert dist.distributed_c10d is distributed_c10d
    assert ReduceOp is dist.ReduceOp
    assert set(dist.__all__) <= set(dir(distributed_c10d))
    assert all(getattr(distributed_c10d, name) is getattr(dist, name) for name in dist.__all__)
    with pytest.raises(dist.UsageError, match="init_process_group"):
        distributed_c10d._get_default_group()
    with pytest.raises(
        ImportError, match="no_such_name"
    ):  # mypy is right, and so is ruff: it is unused
        from distdbg.distributed_c10d import no_such_name  # type: ignore[attr-defined] # noqa: F401
    assert dist.multiprocessing is multiprocessing
    assert multiprocessing.spawn is dist.spawn
    assert issubclass(multiprocessing.ProcessRaisedException, dist.DistError)
