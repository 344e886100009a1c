"""Every flag of torchrun is in the table with the same spellings, default and choices.

torchrun_flags.txt is what torchrun's own parser says of itself, one flag a line.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.launch.flag_table import FLAGS, CommandFlag
from distdbg.launch.flags import make_parser

FACTS = [
    line.split(" | ")
    for line in Path(__file__).with_name("torchrun_flags.txt").read_text().splitlines()
    if line.startswith("-") and "--help" not in line
]
OF_NAME = {flag.name: flag for flag in FLAGS}
#: What distdbg adds; a flag of torchrun under a new name would be found by this.
ADDED = {
    "--run-dir",
    "--no-agent",
    "--agent-listen",
    "--on-deadlock",
    "--timeout",
    "--debuggable",
    "--torch",
    "--debug-on-error",
    "--metrics-port",
    "--metrics-address",
    "--metrics-file",
    "--metrics-push",
    "--otlp",
}


def flag_of(spellings: set[str]) -> CommandFlag:
    [found] = [flag for flag in FLAGS if flag.name in spellings]
    return found


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: re.sub(r",.*--", "/", fact[0]))
def test_a_flag_of_torchrun_is_here_as_it_is_there(fact: list[str]) -> None:
    names, default, choices, nargs, source = fact
    flag = flag_of(set(names.split(", ")))
    assert set(names.split(", ")) <= set(flag.names)
    default = default.removeprefix("default: ").removeprefix("default:")
    same = flag.default == () if default == "[]" else str(flag.default) == default.strip()
    assert same or (flag.default == "" and not default.strip())
    assert flag.choices == tuple(ast.literal_eval(choices.removeprefix("choices: ")) or ())
    assert (flag.kind == "switch") == (nargs == "nargs: 0")
    assert (f"PET_{flag.dest.upper()}" in flag.variables) == (source in ("env", "check_env"))


def test_all_other_flags_are_known_additions() -> None:
    theirs = {flag_of(set(fact[0].split(", "))).name for fact in FACTS}
    assert {flag.name for flag in FLAGS} - theirs == ADDED


def test_every_spelling_of_the_table_is_in_the_parser() -> None:
    accepted = {name for action in make_parser()._actions for name in action.option_strings}
    opposites = {flag.opposite for flag in FLAGS if flag.opposite}
    assert opposites == {"--no-torch"}
    assert accepted == {name for flag in FLAGS for name in flag.names} | opposites | {
        "-h",
        "--help",
    }


def test_ours_is_looked_at_before_torchruns_variable() -> None:
    for flag in FLAGS:
        assert not flag.variables or flag.variables[0] == f"DISTDBG_{flag.dest.upper()}"


def test_the_module_that_torch_has_for_torchrun_is_here_as_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "distdbg.run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.startswith("usage: python -m distdbg.run ")
