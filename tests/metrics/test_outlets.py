"""Numbers that are brought out: of a job that nobody scrapes, as it is over too soon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.scraping import value_of
from tests.support.jobs import RunningJob

StartJob = Callable[..., RunningJob]

SHORT = "dist.destroy_process_group()\n"
#: What is sent at the end is waited for, however busy the host is.
END = {"DISTDBG_EXPORT_END_S": "25"}


class _Gateway(ThreadingHTTPServer):
    """Takes what is pushed."""

    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        self.pushed: list[tuple[str, str]] = []
        self.is_slow = False
        self.end = threading.Event()
        gateway = self

        class Requests(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if gateway.is_slow:
                    gateway.end.wait(600)  # who waited for that would not end in time
                gateway.pushed.append((self.path, body.decode()))
                with suppress(OSError):  # nobody waits for it any more
                    self.send_response(200)
                    self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Requests)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def gateway() -> Iterator[_Gateway]:
    with _Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.end.set()
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_job_that_is_over_at_once_leaves_its_numbers_in_a_file_and_is_pushed(
    start_job: StartJob, gateway: _Gateway, tmp_path: Path
) -> None:
    flags = ["--metrics-file", str(tmp_path), "--metrics-push", gateway.url]
    job = start_job(SHORT, *flags, **END)
    assert job.wait().code == 0
    [path] = tmp_path.iterdir()
    assert path.suffix == ".prom"
    assert path.name.startswith(f"distdbg_{job.run_folder.name}@")
    text = path.read_text()
    assert value_of(text, "distdbg_ops_total", kind="all_reduce") == 40
    assert value_of(text, "distdbg_ranks", state="ended") == 2
    assert value_of(text, "distdbg_rank_up") == 0
    where, text = gateway.pushed[-1]
    assert where.startswith("/metrics/job/distdbg/run/")
    assert value_of(text, "distdbg_op_duration_seconds_count", kind="all_reduce") == 40
    assert value_of(text, "distdbg_rank_up") == 0


@pytest.mark.slow
def test_a_job_that_fails_says_so_in_the_last_push(start_job: StartJob, gateway: _Gateway) -> None:
    # The launcher ends the other one, which waits for nobody and has not failed.
    program = "if rank == 1:\n    sys.exit(3)\nwait_for('go')\n"
    job = start_job(program, "--metrics-push", gateway.url, **END)
    assert job.wait().code == 3
    _, text = gateway.pushed[-1]
    assert value_of(text, "distdbg_dead_ranks") == 1
    assert value_of(text, "distdbg_findings_made_total", kind="dead rank") == 1


@pytest.mark.slow
def test_a_gateway_that_is_not_there_costs_one_line_and_no_time(
    start_job: StartJob, free_port: int
) -> None:
    job = start_job(SHORT, "--metrics-push", f"http://127.0.0.1:{free_port}", ranks=1)
    done = job.wait()
    assert done.code == 0
    assert done.err.count("Pushgateway") == 1


@pytest.mark.slow
def test_a_gateway_that_does_not_answer_holds_nobody_up_for_long(
    start_job: StartJob, gateway: _Gateway
) -> None:
    gateway.is_slow = True
    job = start_job(SHORT, "--metrics-push", gateway.url, ranks=1)
    done = job.wait()
    assert done.code == 0
