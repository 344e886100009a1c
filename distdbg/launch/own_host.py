"""What a launcher keeps on its host across restarts of the ranks.

The folder of the run, what ranks print, the CPUs they are bound to, and the agent.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from distdbg.command import print_error
from distdbg.control.page import ControlPage
from distdbg.errors import ConfigError, RecordError
from distdbg.launch.agent_link import AgentLink
from distdbg.launch.attempt import RankStart
from distdbg.launch.environment import RanksStart, rank_command, rank_environment
from distdbg.launch.machine import cpus_of_ranks
from distdbg.launch.options import RunOptions
from distdbg.launch.outputs.choices import OutputChoices
from distdbg.launch.outputs.folders import make_logs_folder
from distdbg.launch.outputs.losses import say_losses
from distdbg.launch.outputs.outputs import Outputs
from distdbg.launch.own_environment import own_environment
from distdbg.launch.running import Running
from distdbg.launch.start_facts import StartFacts
from distdbg.launch.warden import Warden
from distdbg.record import folders
from distdbg.record.host import host_name
from distdbg.runtime.rendezvous.token import run_token

_DRAIN_S = 5.0
_AGENT_S = 1.0
#: One that has something to send to other tools before it leaves.
_AGENT_PUSHES_S = 4.0
#: How often an agent that is gone is started again.
_MAX_AGENTS = 3


class OwnHost:
    """Made with the launcher; folder, outputs and agent come with the first start."""

    def __init__(self, options: RunOptions, warden: Warden, stack: ExitStack) -> None:
        self._options = options
        self._warden = warden
        self._stack = stack
        #: What the ranks inherit, and what says where the run goes.
        self.environ = own_environment(os.environ)
        self.name = options.local_addr or host_name(self.environ)
        self.run = ""
        self.run_folder: Path | None = None
        self._token = run_token().decode(errors="surrogateescape")
        self._cpus = (
            None
            if options.numa_binding is None
            else cpus_of_ranks(options.numa_binding, options.nproc, os.environ)
        )
        self._outputs: Outputs | None = None
        self.agent = AgentLink(warden)
        self._agents_left = _MAX_AGENTS

    # ------------------------------------------------------------------------------------- folders

    def prepare(self, run: str, number: int) -> tuple[Path, Outputs]:
        """The folder of this start; at the first one, the run's, the logs and the agent as well."""
        try:
            if self.run_folder is None or run != self.run:
                self.run_folder = self._make_run_folder(run)
                self.run = run
                self._outputs = self._open_outputs(self.run_folder)
                if self._options.agent:
                    self._start_agent(self.run_folder)
            elif not self.run_folder.is_dir():
                _tell(f"{self.run_folder} was removed while the ranks ran; it is created again")
                self.run_folder = self._make_run_folder(run)
            folder = folders.attempt_folder(self.run_folder, number)
            folders.make_inner(folder)
        except OSError as error:
            if error.filename is None or error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # it is not about the folder
            raise ConfigError(
                f"the folder of the run cannot be made: {error.filename}: {error.strerror}",
                hint="--run-dir names another one",
            ) from error
        assert self._outputs is not None  # made with the folder of the run
        return folder, self._outputs

    def _make_run_folder(self, run: str) -> Path:
        environ = dict(self.environ)
        if self._options.run_dir is not None:
            environ["DISTDBG_RUN_DIR"] = str(self._options.run_dir)
        folder, held = folders.make_run_folder(run, environ)
        self._stack.callback(os.close, held)
        return folder

    def _open_outputs(self, run_folder: Path) -> Outputs:
        options = self._options
        logs = make_logs_folder(
            run_folder,
            log_dir=options.log_dir,
            run_id=options.rdzv_id,
            host="" if options.standalone else self.name,
            held=self._stack,
        )
        outputs = Outputs(OutputChoices.from_options(options), logs)
        self._stack.callback(outputs.close)
        outputs.start()
        return outputs

    # --------------------------------------------------------------------------------------- ranks

    def start_rank(self, running: Running, facts: StartFacts, local_rank: int) -> None:
        """Start one rank; DistError when it cannot be started."""
        outputs = running.outputs
        round_, options = running.round, self._options
        rank = round_.first_rank + local_rank
        start = RanksStart(
            nodes=round_.nodes,
            node_rank=round_.node_rank,
            restarts=facts.restarts,
            run=facts.run,
            folder=running.folder,
            host=self.name,
            store=round_.store_url("ranks"),
            token=self._token,
            master_addr=facts.master_addr,
            master_port=facts.master_port,
        )
        out, err = outputs.open(local_rank, rank, running.number)
        try:
            running.attempt.start(
                RankStart(
                    rank=rank,
                    argv=rank_command(
                        options, local_rank, environ=self.environ, executable=sys.executable
                    ),
                    environ=rank_environment(
                        options,
                        start,
                        local_rank,
                        environ=self.environ,
                        error_file=outputs.error_file(local_rank, running.number),
                    ),
                    stdout_fd=out,
                    stderr_fd=err,
                    cpus=None if self._cpus is None else self._cpus[local_rank],
                )
            )
        finally:
            for fd in (out, err):
                if fd is not None:
                    os.close(fd)

    def drain(self) -> None:
        """Show the last lines of ranks that have ended."""
        if self._outputs is not None:
            self._outputs.drain(time.monotonic_ns() + int(_DRAIN_S * 1e9))

    def losses(self) -> str:
        """Which files could not be written, in one line; '' for none."""
        return "" if self._outputs is None else say_losses(self._outputs.losses())

    # --------------------------------------------------------------------------------------- agent

    def introduce(self, running: Running) -> None:
        """Tell the agent of a start of the ranks."""
        round_ = running.round
        self.agent.send(
            "attempt",
            number=running.number,
            folder=str(running.folder),
            ranks={str(rank): pid for rank, pid in running.attempt.pids.items()},
            store=round_.store_url("agents"),
            nodes=len(round_.nodes),
            node_rank=round_.node_rank,
            addr=round_.nodes[round_.node_rank].addr,
        )

    def keep_agent(self, running: Running) -> None:
        """Start it again when it is gone: orders to all hosts go through it."""
        if not self.agent.is_lost:
            return
        self.agent.close()
        what = f"the agent of this host {self.agent.how}"
        if self._agents_left == 0 or self.run_folder is None:
            _tell(f"{what}; the job continues without it; its log: {self.agent.log}")
            _give_back_holds(running.folder, self.name)
            return
        self._agents_left -= 1
        _tell(f"{what}; restarting it")
        self._start_agent(self.run_folder)
        self.introduce(running)
        for end in running.attempt.ends.values():
            self.agent.tell_end(end)

    def _start_agent(self, run_folder: Path) -> None:
        environ = {**self.environ, "DISTDBG_TOKEN": self._token}
        if self._options.abort_on is not None:
            environ["DISTDBG_ABORT_ON"] = self._options.abort_on
        environ |= self._options.exports.environment()
        listen = self._options.agent_listen
        extra = [] if listen is None else ["--listen", f"{listen[0]}:{listen[1]}"]
        is_pushed = self._options.exports.is_pushed
        self.agent.start(run_folder, self.run, self.name, environ, extra, is_pushed=is_pushed)

    def end_agent(self) -> None:
        """It leaves by itself; what does not, the warden ends."""
        if not self.agent.is_alive():
            return
        self.agent.close()
        is_pushed = self._options.exports.is_pushed
        deadline = time.monotonic() + (_AGENT_PUSHES_S if is_pushed else _AGENT_S)
        while (left_s := deadline - time.monotonic()) > 0:
            for ended in self._warden.events(left_s):
                self.agent.on_end(ended)
            if not self.agent.is_alive():
                return


def _tell(line: str) -> None:
    print_error(f"distdbg run: {line}")


def _give_back_holds(folder: Path, host: str) -> None:
    """Let the clock run on that an agent held which is gone, and has no successor."""
    with suppress(RecordError):
        page = ControlPage.open(folder, host)
        page.sweep()
        page.close()
