"""Reading a command line and the variables that stand for its flags."""

from __future__ import annotations

import argparse

import pytest

from distdbg.errors import ConfigError, UsageError
from distdbg.launch.flag_table import FLAGS
from distdbg.launch.flags import parse


def read(*argv: str, **environ: str) -> argparse.Namespace:
    return parse([*argv, "train.py"], environ)


def test_without_flags_all_have_the_defaults_of_the_table() -> None:
    flags = vars(read())
    for flag in FLAGS:
        assert flags[flag.dest] == flag.default
        assert type(flags[flag.dest]) is type(flag.default)


@pytest.mark.parametrize(
    "argv",
    [["--nproc-per-node=3"], ["--nproc_per_node", "3"], ["--nproc-per-no=3"]],
    ids=["dashes", "underscores", "abbreviated"],
)
def test_a_flag_may_be_spelled_as_for_torchrun(argv: list[str]) -> None:
    assert read(*argv).nproc_per_node == "3"


def test_short_forms_are_torchruns() -> None:
    flags = read("-r", "3", "-t1", "-m")
    assert (flags.redirects, flags.tee, flags.module) == ("3", "1", True)


def test_the_number_of_ranks_has_mpiexecs_short_form_too() -> None:
    assert read("-n", "3").nproc_per_node == read("-n3").nproc_per_node == "3"


def test_a_switch_that_is_on_by_itself_is_turned_off_by_no_or_its_variable() -> None:
    assert read().torch is read("--torch").torch is True
    assert read("--no-torch").torch is read(DISTDBG_TORCH="0").torch is False
    assert read("--torch", DISTDBG_TORCH="0").torch is True


def test_all_after_the_script_is_the_scripts() -> None:
    flags = parse(["--nnodes=2", "train.py", "--nnodes=5", "-h", "x"], {})
    assert flags.nnodes == "2"
    assert flags.training_script == "train.py"
    assert flags.training_script_args == ["--nnodes=5", "-h", "x"]


def test_two_dashes_end_the_flags() -> None:
    flags = parse(["--nnodes=2", "--", "train.py", "--x"], {})
    assert (flags.training_script, flags.training_script_args) == ("train.py", ["--x"])


def test_the_command_line_wins_over_our_variable_and_that_over_torchruns() -> None:
    both = {"PET_NNODES": "2", "DISTDBG_NNODES": "3"}
    assert read(PET_NNODES="2").nnodes == "2"
    assert read(**both).nnodes == "3"
    assert read("--nnodes=4", **both).nnodes == "4"


def test_a_variable_that_is_set_but_empty_does_not_count() -> None:
    flags = read(DISTDBG_MAX_RESTARTS=" ", PET_MAX_RESTARTS="2", PET_STANDALONE="")
    assert flags.max_restarts == 2
    assert flags.standalone is False


@pytest.mark.parametrize(("text", "is_on"), [("1", True), ("2", True), ("0", False), ("yes", True)])
def test_a_switch_can_be_turned_on_and_off_by_its_variable(text: str, is_on: bool) -> None:
    assert read(PET_STANDALONE=text).standalone is is_on
    assert read("--standalone", PET_STANDALONE=text).standalone is True


def test_two_commas_stand_for_one_in_a_list() -> None:
    assert read("--duplicate-stdout-filters=a,,b,c").duplicate_stdout_filters == ("a,b", "c")
    assert read("--duplicate-stderr-filters=").duplicate_stderr_filters == ()
    assert read(PET_DUPLICATE_STDERR_FILTERS="x,y").duplicate_stderr_filters == ("x", "y")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--max-restarts=x"], "--max-restarts='x' is not valid; expected a whole number"),
        (["--monitor-interval=nan"], "--monitor-interval='nan' is not valid; expected a number"),
        (
            ["--start_method", "x"],
            "--start-method='x' is not valid; expected one of spawn, fork, forkserver",
        ),
        (["--numa-binding=x"], "expected one of node, socket, exclusive, core-complex"),
        (["--standalone=1"], "--standalone: ignored explicit argument '1'"),
        (["--rdzv=1"], "ambiguous option: --rdzv"),
        (["--no_such=1"], "unknown flag --no_such"),
    ],
)
def test_a_bad_flag_is_named_with_its_value(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert caught.value.what.startswith("distdbg run: ")
    assert words in caught.value.what
    assert "distdbg run --help" in str(caught.value.hint)


@pytest.mark.parametrize("argv", [["--nproc", "3"], ["--nproc=3"], ["--nproc_per", "3"]])
def test_a_flag_may_be_cut_short_whatever_its_spellings(argv: list[str]) -> None:
    assert read(*argv).nproc_per_node == "3"


def test_an_unknown_flag_comes_with_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match="unknown flag --nproc-per-nodes") as caught:
        read("--nproc-per-nodes=2")
    assert str(caught.value.hint).startswith("did you mean --nproc-per-node?")


def test_a_command_line_without_a_script_says_so() -> None:
    with pytest.raises(UsageError, match="distdbg run: no script is given"):
        parse(["--nnodes=1"], {})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("PET_MAX_RESTARTS", "many", "a whole number"),
        ("DISTDBG_STANDALONE", "maybe", "1 or 0"),
        ("PET_START_METHOD", "thread", "one of spawn, fork, forkserver"),
    ],
)
def test_a_bad_variable_is_named_with_the_flag_it_stands_for(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: text})
    assert caught.value.what == f"the variable {name}={text!r} is not valid; expected {expected}"
    assert name.partition("_")[2].lower().replace("_", "-") in caught.value.details[0]


def test_the_older_form_passes_the_local_rank_unless_told_not_to() -> None:
    assert parse(["s.py"], {}).use_env is True
    assert parse(["s.py"], {}, is_old_form=True).use_env is False
    assert parse(["--use_env", "s.py"], {}, is_old_form=True).use_env is True
    with pytest.raises(UsageError, match="unknown flag --use-env"):
        parse(["--use-env", "s.py"], {})


def test_help_lists_every_flag_once_and_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["--help"], {})
    assert left.value.code == 0
    said = capsys.readouterr().out
    for flag in FLAGS:
        assert said.count(f" {flag.name} ") + said.count(f" {flag.name}\n") >= 1
    assert "_per_node" not in said
    assert "rendezvous: how the launchers find each other:" in said
