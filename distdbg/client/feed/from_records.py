"""Answers requests like an agent, from the records of this host alone, where a job has no agent.

It knows what ranks do and have done. It does not judge, takes no stacks and changes nothing: that is the
agent's to do, which the job was started without, or has lost.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from distdbg.control.page import read_page
from distdbg.errors import DistNetworkError, RecordError, UsageError
from distdbg.follow.answers.methods import Board
from distdbg.follow.answers.op_json import plain_groups, plain_ops
from distdbg.follow.roster import Roster
from distdbg.follow.tail import TailedRecord
from distdbg.record.folders import attempt_number

_WHY = "no agent answers for this run: it was started without one, or it is gone"


class RecordsClient:
    """One run on this host, as its records show it."""

    def __init__(self, attempt: Path, run: str, host: str) -> None:
        """`attempt`: the folder of the newest start of the ranks."""
        number = attempt_number(attempt)
        self.hello: dict[str, Any] = {
            "distdbg": "records",
            "run": run,
            "host": host,
            "pid": os.getpid(),
        }
        self.host = host
        self.folder = attempt if number is None else attempt.parent
        self.roster = Roster(attempt, host, attempt=number or 0, is_reported=True)
        self._run = run
        self._board = Board(self)
        self._methods = {
            "about": self._about,
            "ranks": self._ranks,
            "groups": self._groups,
            "ops": self._ops,
            "verdict": lambda _: {"lines": [], "verdict": None},
            "waits": lambda _: {"waits": []},
            **self._board.methods,
        }

    def ask(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Any:
        """Answer as an agent would. UsageError for what only an agent can do."""
        method = self._methods.get(do)
        if method is None:
            raise UsageError(f"{do}: {_WHY}", hint="`distdbg run` starts an agent with the job")
        if not self.roster.folder.is_dir():
            raise DistNetworkError(f"the folder {self.roster.folder} is gone")
        self.roster.tick(time.monotonic_ns())
        try:
            return method(arguments)
        except RecordError as error:
            raise DistNetworkError(f"a record cannot be read: {error.what}") from error

    def close(self) -> None:
        self._board.close()
        self._board.gpus.close()
        self.roster.close()

    # ------------------------------------------------------------------------------- methods

    def _about(self, _: dict[str, Any]) -> dict[str, Any]:
        control: dict[str, Any] = {"is_paused": False, "paused_s": 0.0, "abort": None}
        try:
            state = read_page(self.roster.folder, self.host)
        except RecordError:
            state = None
        if state is not None:
            control = {
                "is_paused": state.is_paused,
                "paused_s": state.paused_ns / 1e9,
                "abort": None if state.abort is None else {"what": state.abort.what},
            }
        return {
            "run": self._run,
            "host": self.host,
            "attempt": self.roster.attempt,
            "run_folder": str(self.folder),
            "control": control,
            "tree": None,
            "world": self.roster.world_size,
            "is_debuggable": None,
        }

    def _ranks(self, _: dict[str, Any]) -> dict[str, Any]:
        watched_ranks = self.roster.watched_ranks
        return {
            "ranks": [
                row.plain() | self._board.use_of(watched_ranks[row.rank])
                for row in self.roster.rows(time.monotonic_ns())
            ]
        }

    def _groups(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"groups": plain_groups(self._records())}

    def _ops(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"ops": plain_ops(self._records(), time.monotonic_ns())}

    def _records(self) -> list[tuple[int, TailedRecord]]:
        watched_ranks = sorted(self.roster.watched_ranks.items())
        return [
            (rank, watched.record) for rank, watched in watched_ranks if watched.record is not None
        ]
