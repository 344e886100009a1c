"""What cannot be exported is said before there are ranks; what only the agent can know costs a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob

StartJob = Callable[..., RunningJob]

PROGRAM = "print('begun', flush=True)\ndist.destroy_process_group()\n"


@pytest.mark.parametrize(
    ("flags", "variables", "said"),
    [
        (["--metrics-port", "70000"], {}, "--metrics-port=70000"),
        (["--metrics-address", "0.0.0.0:9400"], {}, "without a token"),
        (["--metrics-file", "/nowhere/at/all"], {}, "/nowhere/at/all"),
        (["--metrics-push", "gateway"], {}, "Pushgateway"),
        (["--otlp", "spans"], {}, "'spans'"),
        ([], {"DISTDBG_METRICS": "host:x"}, "DISTDBG_METRICS="),
        ([], {"DISTDBG_OTLP": "metric"}, "DISTDBG_OTLP"),
        (
            ["--metrics-port", "0"],
            {"DISTDBG_METRICS_TOKEN_FILE": "/nowhere/token"},
            "token file /nowhere/token cannot be read",
        ),
    ],
)
def test_what_cannot_be_is_an_error_before_there_are_ranks(
    start_job: StartJob, flags: list[str], variables: dict[str, str], said: str
) -> None:
    done = start_job(PROGRAM, *flags, **variables).wait()
    assert done.code != 0
    assert said in done.err
    assert "Traceback" not in done.err
    assert "begun" not in done.out


def test_a_token_that_others_can_read_is_an_error(start_job: StartJob, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    variables = {"DISTDBG_METRICS_TOKEN_FILE": str(token)}
    done = start_job(PROGRAM, "--metrics-port", "0", **variables).wait()
    assert done.code != 0
    assert "can be read by others" in done.err
    assert "begun" not in done.out


@pytest.mark.slow
def test_a_folder_that_goes_while_the_job_runs_costs_one_line(
    start_job: StartJob, tmp_path: Path, go: Callable[[str], None]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    job = start_job(
        "print('begun', flush=True)\nwait_for('go')\n", "--metrics-file", str(folder), ranks=1
    )
    job.until(lambda: list(job.run_folder.glob("agent-*.log")), "there is an agent")
    folder.rmdir()
    go("go")
    done = job.wait()
    assert done.code == 0
    assert done.err.count("folder for metrics") == 1


def test_without_an_agent_it_is_said_that_nothing_is_exported(start_job: StartJob) -> None:
    done = start_job(PROGRAM, "--metrics-port", "0", "--no-agent", ranks=1).wait()
    assert done.code == 0
    assert "nothing is exported" in done.err
