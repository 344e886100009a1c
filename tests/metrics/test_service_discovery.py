"""/sd: one place that names all jobs of a user on a host, and the hosts of each; ports that others have."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.client.live_runs import find_live_runs
from tests.metrics.scraping import await_that, get, get_numbers, value_of
from tests.support.hosts import Hosts
from tests.support.jobs import RunningJob

StartJob = Callable[..., RunningJob]
Go = Callable[[str], None]

ONE = "wait_for('one')\ndist.destroy_process_group()\n"
OTHER = "wait_for('go')\ndist.destroy_process_group()\n"


def targets(port: int) -> dict[str, str]:
    """By address, the run."""
    answer = get(f"http://127.0.0.1:{port}/sd")
    assert answer.headers["Content-Type"] == "application/json"
    return {
        one["targets"][0]: one["labels"]["__meta_distdbg_run"] for one in json.loads(answer.text)
    }


@pytest.mark.slow
def test_the_second_job_of_a_host_is_found_at_the_port_of_the_first(
    start_job: StartJob, free_port: int, go: Go
) -> None:
    first = start_job(ONE, "--metrics-port", str(free_port), ranks=1)
    await_that(lambda: targets(free_port), "the first does not serve")
    first_run = first.run_folder.name
    second = start_job(OTHER, "--metrics-port", str(free_port), ranks=1)
    found = await_that(
        lambda: found if len(found := targets(free_port)) == 2 else None, "no second target"
    )
    assert found[f"127.0.0.1:{free_port}"] == first_run
    [(address, run)] = [one for one in found.items() if one[1] != first_run]
    assert run == second.run_folder.name
    text = get_numbers(f"http://{address}")
    assert f'run="{run}"' in text

    # The first ends: the second takes over what it asked for, and goes on where it was.
    go("one")
    assert first.wait().code == 0
    found = await_that(lambda: targets(free_port), "nobody takes the port over")
    assert found == {address: run}
    assert f'run="{run}"' in get_numbers(f"http://127.0.0.1:{free_port}")
    assert f'run="{run}"' in get_numbers(f"http://{address}")
    go("go")
    done = second.wait()
    assert f"port {free_port} is held by" in done.err


@pytest.mark.slow
def test_the_first_host_adds_up_for_all_and_names_all(tmp_path: Path) -> None:
    program = """
import os, sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
for _ in range(20):
    dist.all_reduce(np.ones(4, dtype=np.float32))
say("ready")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
dist.destroy_process_group()
"""
    with Hosts(tmp_path) as hosts:
        ports = [hosts.port + 1 + n for n in range(2)]
        script, end = hosts.script(program), tmp_path / "end"
        both = [
            hosts.launch(
                n,
                *hosts.static(2, n),
                "--nproc-per-node",
                "2",
                "--metrics-address",
                f"{hosts.address(n)}:{ports[n]}",
                script,
                str(end),
            )
            for n in range(2)
        ]
        for launcher in both:
            launcher.wait_for("ready", 2)
        at = [f"http://{hosts.address(n)}:{ports[n]}" for n in range(2)]

        def read_all() -> list[str] | None:
            texts = [get_numbers(url) for url in at]
            count = value_of(
                texts[0], "distdbg_op_duration_seconds_count", kind="all_reduce", group="world"
            )
            # A host that is slow to answer is missing for that moment; its older numbers stay in the sums.
            missing = value_of(texts[0], "distdbg_agent_hosts_missing")
            return texts if (count, missing) == (80, 0) else None

        first, second = await_that(read_all, "the sums are not those of both hosts", 30.0)
        assert value_of(first, "distdbg_ops_total", kind="all_reduce") == 40
        assert value_of(second, "distdbg_ops_total", kind="all_reduce") == 40
        assert value_of(first, "distdbg_world_size") == 4
        # What is said of the whole job is said once.
        assert value_of(second, "distdbg_world_size") is None
        assert value_of(second, "distdbg_op_duration_seconds_count") is None

        def named() -> set[str]:
            return {one["targets"][0] for one in json.loads(get(f"{at[0]}/sd").text)}

        wanted = {f"{hosts.address(n)}:{ports[n]}" for n in range(2)}
        await_that(lambda: named() == wanted, "not all hosts are named")

        # A host that is not heard of any more keeps what it has told.
        [other] = [
            live.socket
            for live in find_live_runs("", tempdir=str(hosts.runs.parent))
            if live.host == hosts.address(1) and live.socket is not None
        ]
        with AgentClient.at(other) as client:
            agent = int(client.hello["pid"])
        os.kill(agent, signal.SIGSTOP)
        try:

            def read_missing() -> str | None:
                text = get_numbers(f"{at[0]}")
                return text if value_of(text, "distdbg_agent_hosts_missing") == 1 else None

            text = await_that(read_missing, "nobody notices that a host is missing", 30.0)
            assert value_of(text, "distdbg_op_duration_seconds_count", kind="all_reduce") == 80
        finally:
            os.kill(agent, signal.SIGCONT)
        end.touch()
        assert [launcher.wait() for launcher in both] == [0, 0]
