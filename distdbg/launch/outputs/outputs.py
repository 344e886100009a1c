"""The output of the ranks of one launcher: opens files and pipes for it, and shows it line by line.

outputs = Outputs(choices, logs)
outputs.start()
out, err = outputs.open(local_rank, rank, attempt)      for each rank; hand them over, then close
...
outputs.drain(deadline_ns)                              the ranks have ended
outputs.close()
"""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
import time
from contextlib import suppress
from pathlib import Path

from distdbg.errors import ConfigError
from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.alike import EqualLines
from distdbg.launch.outputs.choices import OutputChoices, StreamTarget
from distdbg.launch.outputs.folders import (
    ERROR_NAME,
    FILTERED_NAMES,
    LOG_NAMES,
    make_rank_folder,
    rank_folder,
)
from distdbg.launch.outputs.lines import LineCutter
from distdbg.launch.outputs.losses import OutputLoss
from distdbg.launch.outputs.pipe_tail import PipeTail
from distdbg.launch.outputs.sinks import LineFile, OutputDescriptor, Sink
from distdbg.launch.outputs.tail import LogTail, TeePipe
from distdbg.record.folders import attempt_folder
from distdbg.record.line_times import LOOK_NS, LineTimesWriter

_log = logging.getLogger("distdbg.launch")

#: How often files are looked at while nobody prints.
_IDLE_S = 0.1
_BUSY_S = 0.005
#: How long one look waits for a console that is full.
_FULL_MS = 20
_DISK_S = 1.0


class Outputs:
    """Files, tails and the thread that moves them. All methods may be called from any thread."""

    def __init__(
        self, choices: OutputChoices, logs: Path | None, *, stdout_fd: int = 1, stderr_fd: int = 2
    ) -> None:
        """`logs` is what `make_logs_folder` made; None: nothing is kept in files."""
        self._choices = choices
        self._logs = logs
        self._consoles: dict[StdStreams, Sink] = {
            StdStreams.OUT: OutputDescriptor(stdout_fd),
            StdStreams.ERR: OutputDescriptor(stderr_fd),
        }
        self._line_files: dict[tuple[int, StdStreams], LineFile] = {}
        #: Protects the tails, the line files and the positions in all of them.
        self._lock = threading.Lock()
        self._tails: list[LogTail] = []
        #: The pipes of streams that are kept and shown.
        self._tees: list[TeePipe] = []
        #: What could not be written, by the file's name.
        self._losses: dict[Path, OutputLoss] = {}
        #: The pipes of ranks whose stderr goes straight to the console.
        self._pipes: list[PipeTail] = []
        #: By rank, what faulthandler printed of a crash in native code on such a pipe.
        self.crashes: dict[int, bytes] = {}
        self._alike = EqualLines()
        self._times: list[LineTimesWriter] = []
        self._times_due_ns = 0
        #: To end a wait of the thread: it reads the first, and who wants it writes to the second.
        self._wake_fds = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_closing = False
        self._is_closed = False
        self._disk_due_ns = 0
        self._thread: threading.Thread | None = None
        self._is_started = False

    # ------------------------------------------------------------------------------- for the ranks

    def open(self, local_rank: int, rank: int, attempt: int) -> tuple[int | None, int | None]:
        """Return descriptors for a rank's stdout and stderr; None: it inherits the launcher's.

        The caller closes them when the rank has them. ConfigError when a file cannot be made.
        """
        fds: list[int | None] = []
        try:
            if self._logs is not None:
                make_rank_folder(self._logs, attempt, local_rank)
            fds.append(self._open(StdStreams.OUT, local_rank, rank, attempt))
            fds.append(self._open(StdStreams.ERR, local_rank, rank, attempt))
        except OSError as error:
            for fd in fds:
                if fd is not None:
                    os.close(fd)
            raise ConfigError(
                f"the outputs of local rank {local_rank} cannot be kept in {error.filename}: "
                f"{error.strerror}",
                hint=_hint(error.errno),
            ) from error
        return fds[0], fds[1]

    def error_file(self, local_rank: int, attempt: int) -> Path | None:
        """Where that rank says what ended it; None: nothing is kept."""
        if self._logs is None:
            return None
        return rank_folder(self._logs, attempt, local_rank) / ERROR_NAME

    def log_file(self, local_rank: int, attempt: int, stream: StdStreams) -> Path | None:
        """Where that rank's stream is kept; None: it is not."""
        if self._logs is None or self._choices.place(local_rank, stream) is not StreamTarget.FILE:
            return None
        return rank_folder(self._logs, attempt, local_rank) / LOG_NAMES[stream]

    def losses(self) -> list[OutputLoss]:
        """What could not be written so far: files; a folder only where no file is known."""
        files = [loss for path, loss in self._losses.items() if path != self._logs]
        return files or list(self._losses.values())

    def _open(self, stream: StdStreams, local_rank: int, rank: int, attempt: int) -> int | None:
        place = self._choices.place(local_rank, stream)
        if place is StreamTarget.INHERITED and stream is StdStreams.ERR:
            return self._open_pipe(rank)
        if place is StreamTarget.INHERITED:
            return None
        path = self.log_file(local_rank, attempt, stream)
        if place is StreamTarget.NOWHERE or path is None:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        if self._choices.is_teed(local_rank, stream):
            fd = self._open_tee(path, stream, self._choices.prefix(local_rank, rank), attempt)
        else:
            # Appending, so that children of the rank do not write over each other's lines.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(path, flags, 0o600)
        try:
            with self._lock:
                self._times.append(LineTimesWriter(path, rank))
            self._run_thread()
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_tee(self, path: Path, stream: StdStreams, prefix: str, attempt: int) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        tails: list[LogTail] = []
        try:
            tee = TeePipe(reading, path, tails, self._on_loss)
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        with self._lock:
            self._tees.append(tee)
        try:
            tails += self._follow(path, stream, prefix, attempt)
        except BaseException:
            os.close(writing)
            raise
        self._wake_up()
        return writing

    def _open_pipe(self, rank: int) -> int:
        """What ranks print at once must not be torn within a line."""
        tail, fd = PipeTail.open(rank, self._consoles[StdStreams.ERR], self._alike)
        with self._lock:
            self._pipes.append(tail)
        self._wake_up()
        self._run_thread()
        return fd

    def _follow(self, path: Path, stream: StdStreams, prefix: str, attempt: int) -> list[LogTail]:
        start = prefix.encode(errors="surrogateescape")
        needles = [text.encode(errors="surrogateescape") for text in self._choices.filters(stream)]
        read_only = os.O_RDONLY | os.O_CLOEXEC
        with self._lock:
            tails = [LogTail(os.open(path, read_only), LineCutter(start), self._consoles[stream])]
            self._tails += tails
            if needles:
                sink = self._line_file(attempt, stream)
                tails.append(LogTail(os.open(path, read_only), LineCutter(start, needles), sink))
                self._tails += tails[1:]
        return tails

    def _line_file(self, attempt: int, stream: StdStreams) -> LineFile:
        assert self._logs is not None  # without files nothing is followed
        key = (attempt, stream)
        if key not in self._line_files:
            path = attempt_folder(self._logs, attempt) / FILTERED_NAMES[stream]
            self._line_files[key] = LineFile(path, lambda error: self._on_loss(path, error, 0))
        return self._line_files[key]

    # ------------------------------------------------------------------------------- for the launcher

    def start(self) -> None:
        """Begin to show what is printed; a thread runs only while something is kept in files."""
        self._is_started = True
        self._run_thread()

    def drain(self, deadline_ns: int) -> bool:
        """Show all that ranks which have ended printed, also a last line without an end.

        Whether all of it went out by the deadline (monotonic); a console that nobody reads may refuse.
        What was opened before is not followed any further.
        """
        self._disk_due_ns = 0
        self._watch_disk()
        is_late = False
        is_finished = False
        while True:
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            if not self._lock.acquire(timeout=max(left_s, 0.1)):
                return False  # the thread is held by a console
            try:
                is_late = left_s <= 0
                moved = not is_finished and self._step()
                is_out = self._flush()
                if not is_finished and (is_late or (is_out and not moved)):
                    self._finish(is_late=is_late)
                    is_finished = True
                    is_out = self._flush()
                if is_finished and (is_out or is_late):
                    return is_out and not is_late
            finally:
                self._lock.release()
            if not moved:
                time.sleep(_BUSY_S)

    def close(self) -> None:
        """End the thread, which may be held by a console for a moment. Idempotent."""
        self._is_closing = True
        self._wake_up()
        is_alive = False
        if self._thread is not None:
            self._thread.join(1.0)
            is_alive = self._thread.is_alive()
            self._thread = None
        if self._lock.acquire(timeout=1.0):
            try:
                for tail in self._tails:
                    tail.close()
                self._tails.clear()
                self._close_tees()
                self._close_pipes(is_late=True)
                self._close_times()
                self._close_line_files()
                for console in self._consoles.values():
                    console.close()
                if not is_alive and not self._is_closed:
                    self._is_closed = True
                    for fd in self._wake_fds:
                        os.close(fd)
            finally:
                self._lock.release()

    # ------------------------------------------------------------------------------- moving lines

    def _run_thread(self) -> None:
        is_needed = self._tails or self._tees or self._times or self._pipes
        if self._is_started and is_needed and self._thread is None and not self._is_closing:
            # A daemon: a console that blocks for good must not keep the launcher.
            self._thread = threading.Thread(target=self._loop, name="distdbg-outputs", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while not self._is_closing:
            with self._lock:
                moved = self._step()
                self._look_at_lengths()
                is_full = not self._consoles[StdStreams.ERR].flush(0)
                pipes = [pipe.fileno() for pipe in self._pipes if not (pipe.is_over or is_full)]
                pipes += [tee.fileno() for tee in self._tees if not (tee.is_over or tee.is_full)]
            self._watch_disk()
            if not moved:
                self._wait(pipes)

    def _wait(self, pipes: list[int]) -> None:
        """Wait until a rank prints on its pipe, or some time has passed."""
        poll = select.poll()
        for fd in (self._wake_fds[0], *pipes):
            poll.register(fd, select.POLLIN)
        poll.poll(_IDLE_S * 1e3)
        with suppress(BlockingIOError):
            os.read(self._wake_fds[0], 64)

    def _wake_up(self) -> None:
        with suppress(BlockingIOError, OSError):
            os.write(self._wake_fds[1], b"x")

    def _step(self) -> bool:
        """One chunk of each stream whose sink has room; whether anything moved."""
        room = {id(sink): sink.flush(0) for sink in self._sinks()}
        moved = sum(tee.step() for tee in self._tees) > 0
        tails: list[LogTail | PipeTail] = [*self._tails, *self._pipes]
        for tail in tails:
            if room[id(tail.sink)] and tail.step():
                moved = True
                room[id(tail.sink)] = tail.sink.flush(_FULL_MS)
        folded = self._alike.idle(time.monotonic())
        if folded:
            self._consoles[StdStreams.ERR].put(folded)
        return moved or bool(folded)

    def _look_at_lengths(self, *, is_last: bool = False) -> None:
        """Note how long each file is: by that its lines get their times."""
        now_ns = time.monotonic_ns()
        if is_last or now_ns >= self._times_due_ns:
            self._times_due_ns = now_ns + LOOK_NS
            for times in self._times:
                times.look(time.time_ns(), is_last=is_last)

    def _flush(self) -> bool:
        """Write what all sinks have kept; whether nothing is left."""
        return False not in [sink.flush(0) for sink in self._sinks()]

    def _sinks(self) -> list[Sink]:
        return [*self._consoles.values(), *self._line_files.values()]

    def _finish(self, *, is_late: bool) -> None:
        for tee in self._tees:
            while tee.step():  # into the file also where the console takes nothing more
                pass
        for tail in self._tails:
            if isinstance(tail.sink, LineFile):
                while tail.step():  # the console may be behind; this file need not be
                    pass
            if not is_late or isinstance(tail.sink, LineFile):
                tail.finish()
            tail.close()
        self._tails.clear()
        self._close_tees()
        self._close_pipes(is_late=is_late)
        self._close_times()
        self._close_line_files()

    def _close_pipes(self, *, is_late: bool) -> None:
        for pipe in self._pipes:
            if not is_late:
                pipe.finish()
            if pipe.crash:
                self.crashes[pipe.rank] = pipe.crash
            pipe.close()
        self._pipes.clear()
        self._consoles[StdStreams.ERR].put(self._alike.finish())

    def _close_tees(self) -> None:
        for tee in self._tees:
            tee.close()
        self._tees.clear()

    def _close_times(self) -> None:
        self._look_at_lengths(is_last=True)
        for times in self._times:
            times.close()
        self._times.clear()

    def _close_line_files(self) -> None:
        for file in self._line_files.values():
            file.close()
        self._line_files.clear()

    def _watch_disk(self) -> None:
        """Ranks get an error of their own when the disk is full; this says what it means, once."""
        now_ns = time.monotonic_ns()
        if self._logs is None or self._losses or now_ns < self._disk_due_ns:
            return
        self._disk_due_ns = now_ns + int(_DISK_S * 1e9)
        with suppress(OSError):
            about = os.statvfs(self._logs)
            free = about.f_bavail if os.geteuid() else about.f_bfree  # the rest is root's
            if about.f_blocks and not free:
                error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._on_loss(self._logs, error, 0)

    def _on_loss(self, path: Path, error: OSError, nbytes: int) -> None:
        """A file did not take what belongs into it: said at once for the first, and at the end for all."""
        if not self._losses:
            _log.warning("%s: %s; what ranks print may be lost there", path, error.strerror)
        loss = self._losses.get(path)
        if loss is None:
            why = error.strerror or str(error)
            loss = self._losses[path] = OutputLoss(path=path, why=why, since_wall_ns=time.time_ns())
        loss.nbytes += nbytes


def _hint(number: int | None) -> str:
    if number in (errno.EMFILE, errno.ENFILE):
        return "`ulimit -n` says how many files a process may open; raise it, or tee fewer ranks"
    return "choose another folder with --log-dir"
