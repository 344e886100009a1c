"""The command `distdbg`: which command is meant, what is printed where, and the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import distdbg
from distdbg.cli.commands import COMMANDS, CliCommand
from distdbg.cli.main import main
from distdbg.command import run_command
from distdbg.errors import OpTimeout, RecordError

Capture = pytest.CaptureFixture[str]
ROOT = Path(distdbg.__file__).parents[1]


def run_python(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_on_stdout(argv: list[str], capsys: Capture) -> None:
    assert main(argv) == 0
    said = capsys.readouterr()
    for command in COMMANDS:
        assert command.about in said.out
    assert said.err == ""


def test_without_a_command_help_is_on_stderr_and_the_exit_code_is_2(capsys: Capture) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "commands:" in said.err


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"distdbg {distdbg.__version__}\n"


def test_an_unknown_command_comes_with_the_nearest_one(capsys: Capture) -> None:
    assert main(["rnu"]) == 2
    said = capsys.readouterr()
    assert said.err == "UsageError: distdbg: unknown command 'rnu'\n  hint: did you mean run?\n"
    assert said.out == ""
    assert main(["frobnicate"]) == 2
    assert "there are run, ps" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_module_of_a_command_has_a_main(command: CliCommand) -> None:
    assert callable(import_module(command.module).main)


def test_a_name_longer_than_a_path_may_be_is_a_usage_error(capsys: Capture) -> None:
    assert main(["record", "a" * 300]) == 2
    assert capsys.readouterr().err == f"UsageError: {'a' * 40}...: File name too long\n"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["plan", "all_reduce", "--ranks", "x"], "'x' is not a whole number"),
        (["plan", "all_reduce", "--ranks", "0"], "must be at least 1"),
        (["query", "--limit", "x"], "'x' is not a whole number"),
        (["diff", "a", "b", "--limit", "-1"], "must not be negative"),
        (["record", "--ops", "-1"], "must not be negative"),
    ],
)
def test_a_count_that_is_none_is_refused(argv: list[str], why: str, capsys: Capture) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.endswith(f"argument {argv[-2]}: {why}\n")


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException:\n    raise ImportError('as numpy says')\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from distdbg.cli import main\n"
        "main._MODULES['slow'] = 'slow'\n"
        "main.main(['slow'])\n"
    )
    ended = run_python("-c", program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_commands_own_help_ends_well(capsys: Capture) -> None:
    for name in ("run", "record"):
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: distdbg {name} ")


def test_a_bad_flag_of_run_is_said_in_one_line_and_a_hint(capsys: Capture) -> None:
    assert main(["run", "--nnodes=3:1", "train.py"]) == 2
    said = capsys.readouterr()
    assert said.err == "UsageError: --nnodes=3:1: the least, 3, is more than the most, 1\n"
    assert main(["run", "--nnode=1"]) == 2
    assert "hint: distdbg run --help" in capsys.readouterr().err
    assert main(["run", "--op-timeout=3", "train.py"]) == 2
    assert "hint: did you mean --timeout? " in capsys.readouterr().err


def test_records_are_printed_by_a_command(tmp_path: Path, capsys: Capture) -> None:
    assert main(["record", str(tmp_path)]) == 7
    assert "holds no records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(OpTimeout("x"), 4), (RecordError("x"), 7), (KeyboardInterrupt(), 130)]
)
def test_an_error_becomes_its_exit_code(error: BaseException, code: int, capsys: Capture) -> None:
    def command() -> int:
        raise error

    assert run_command(command) == code
    said = capsys.readouterr().err
    assert said == ("" if code == 130 else f"{type(error).__name__}: x\n")


def test_a_bug_shows_its_traceback_and_ends_with_70(capsys: Capture) -> None:
    assert run_command(lambda: 1 // 0) == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "a bug of distdbg" in said


def test_what_a_command_returns_or_leaves_with_is_the_exit_code(capsys: Capture) -> None:
    assert run_command(lambda: 5) == 5
    assert run_command(lambda: sys.exit(6)) == 6
    assert run_command(sys.exit) == 0
    assert run_command(lambda: sys.exit("words")) == 1
    assert capsys.readouterr().err == "words\n"


def test_the_package_itself_is_the_command() -> None:
    done = run_python("-m", "distdbg", "--version")
    assert (done.returncode, done.stdout) == (0, f"distdbg {distdbg.__version__}\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m distdbg run --help | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_help_loads_neither_arrays_nor_the_extension_nor_argparse() -> None:
    script = (
        "import sys; from distdbg.cli.main import main; main(['--help'])\n"
        "print([m for m in ('numpy', 'distdbg._native', 'argparse', 'torch', 'rich') if m in sys.modules])"
    )
    done = run_python("-c", script)
    assert done.stdout.endswith("\n[]\n"), done.stdout + done.stderr


def test_the_older_form_is_a_module_to_run() -> None:
    done = run_python("-m", "distdbg.launch", "--no-python", "train.sh")
    assert done.returncode == 2
    assert done.stderr.startswith("UsageError: --no-python needs --use-env as well")


def test_a_command_that_closes_its_output_early_is_told_nothing() -> None:
    done = run_python(
        "-c",
        "from distdbg.command import run_command\ndef f(): raise BrokenPipeError\n"
        "raise SystemExit(run_command(f))",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_run_by_its_path_finds_itself_as_the_main_program(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import sys\nprint(__name__, __file__, sys.argv)\n")
    done = run_python("-m", "distdbg.launch.run_path", str(script), "--x", "1")
    assert done.stdout == f"__main__ {script} {[str(script), '--x', '1']}\n", done.stderr


def test_a_full_disk_under_the_output_is_no_bug_of_ours() -> None:
    script = (
        "import sys\nfrom distdbg.command import run_command\n"
        "raise SystemExit(run_command(lambda: print('x') or 0))"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False, cwd=ROOT,
        )  # fmt: skip
    said = "UsageError: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("close", ["", ">&-"])
def test_an_output_that_is_closed_or_knows_no_such_letter_is_no_bug_of_ours(close: str) -> None:
    script = (
        "import sys\nfrom distdbg.command import run_command\n"
        "raise SystemExit(run_command(lambda: sys.stdout.write('\\u2502\\n') and 0))"
    )
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {close}', sys.executable, script],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if close else "\\u2502\n")
