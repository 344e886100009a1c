"""A Prometheus of one's own: on a free port of this host, with a private folder, ended whatever happens.

with prometheus(folder, config) as server:
    server.until("up == 1", 10)
    server.query("rate(distdbg_ops_total[10s])")

For tests, pictures and measurements that want the real thing. `made_quick` makes a configuration or
rules, which are made for hours, fit for seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from distdbg.launch.parent_death import die_with_parent
from tests.support.ports import free_port

_START_S: Final = 60.0
_ANSWER_S: Final = 30.0
_TRIES: Final = 3
#: A range, an offset, a patience: "[2m]", "offset 10m", "for: 5m".
_LENGTH: Final = re.compile(r"(\[|offset |for: |interval: )(\d+)([smh])\b")
_IN_S: Final = {"s": 1, "m": 60, "h": 3600}

#: One series: its labels, `__name__` among them, and its points as (seconds since 1970, value).
Series = tuple[dict[str, str], list[tuple[float, float]]]


class QueryRefused(ValueError):
    """Prometheus does not understand it, or cannot answer."""


class PrometheusAt:
    """What a Prometheus answers."""

    def __init__(self, address: str) -> None:
        self.address = address

    def api(self, path: str, **words: str | Sequence[str]) -> Any:
        """The `data` of an answer of its API, version 1."""
        url = f"{self.address}/api/v1/{path}?{urlencode(words, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise QueryRefused(f"{words}: {error.read().decode(errors='replace')}") from None

    def query(self, expression: str, at_s: float | None = None) -> list[Series]:
        """The value of each series, now or then."""
        words = {"query": expression} | ({} if at_s is None else {"time": f"{at_s:.3f}"})
        data = self.api("query", **words)
        if data["resultType"] == "scalar":
            return [({}, [_point(data["result"])])]
        return [(one["metric"], [_point(one["value"])]) for one in data["result"]]

    def query_range(
        self, expression: str, begin_s: float, end_s: float, step_s: float
    ) -> list[Series]:
        """The values of each series over time."""
        data = self.api(
            "query_range",
            query=expression,
            start=f"{begin_s:.3f}",
            end=f"{end_s:.3f}",
            step=f"{step_s:.3f}",
        )
        return [(one["metric"], [_point(it) for it in one["values"]]) for one in data["result"]]

    def until(self, expression: str, timeout_s: float) -> list[Series]:
        """What an expression comes to, as soon as it comes to anything."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.query(expression)
            if found:
                return found
            if time.monotonic() > deadline:
                targets = self.api("targets", state="active")["activeTargets"]
                seen = [(it["scrapeUrl"], it["health"], it["lastError"]) for it in targets]
                raise AssertionError(f"no data within {timeout_s:g} s: {expression}\n{seen}")
            time.sleep(0.1)  # the next scrape or evaluation is not announced


class Prometheus(PrometheusAt):
    """One that was started here."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        super().__init__(f"http://127.0.0.1:{port}")
        self.process = process
        self._log = log

    def said(self) -> str:
        """Its log, warnings and worse."""
        return self._log.read_text(errors="replace")


def made_quick(text: str, factor: float, least_s: float = 1.0) -> str:
    """Rules or a configuration whose times are shorter by `factor`, in whole seconds."""

    def shorter(match: re.Match[str]) -> str:
        seconds = int(match[2]) * _IN_S[match[3]] / factor
        return f"{match[1]}{max(seconds, least_s):.0f}s"

    return _LENGTH.sub(shorter, text)


@contextmanager
def prometheus(folder: Path, config: str, flags: Sequence[str] = ()) -> Iterator[Prometheus]:
    """Run one with this configuration; relative paths in it are from `folder`, where its data are as well."""
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("prometheus is not installed")
    (folder / "prometheus.yml").write_text(config)
    for attempt in range(_TRIES):
        server = _start(program, folder, flags)
        try:
            # Somebody else may have taken the port meanwhile.
            if _is_ready(server) or attempt == _TRIES - 1:
                if server.process.poll() is not None:
                    raise RuntimeError(f"prometheus ended: {server.said()}")
                yield server
                return
        finally:
            server.process.kill()
            server.process.wait()


def _start(program: str, folder: Path, flags: Sequence[str]) -> Prometheus:
    port = free_port()
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
                *flags,
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    return Prometheus(process, port, log)


def _is_ready(server: Prometheus) -> bool:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.address}/-/ready", timeout=10):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # nothing announces that it listens
    return False


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
