"""The table of formats that a finished or living run can be written in. A format's module is imported when
it is used, and has one function:

    write(run: Opened, output: BinaryIO) -> None        a file; `output` need not be seekable
    write(run: Opened, folder: Path) -> None            `is_folder`: a folder that is there, and empty

It reads `run` by `Start.read()` and writes as it goes: what it keeps in memory must not grow with the number
of ops, nor by more than names with that of ranks. Where the bytes go, and that they are there whole or not
at all, is not its business. A library that is missing is a UsageError that names the extra; a module that
needs one has `check() -> None` as well, which is asked before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One word after `--to`."""

    name: str
    about: str
    """What opens it, in one sentence."""
    module: str
    extension: str
    """What the name of a file, with its dot, or of a folder ends in."""
    is_folder: bool = False
    is_text: bool = False
    """Whether a terminal can show it."""


FORMATS: tuple[Format, ...] = (
    Format("perfetto", "a trace for ui.perfetto.dev and trace_processor", "distdbg.export.trace.perfetto",
        ".perfetto-trace"),
    Format("chrome", "a JSON trace for chrome://tracing, ui.perfetto.dev and speedscope",
        "distdbg.export.trace.chrome", ".trace.json", is_text=True),
    Format("torch-fr", "a folder of dumps for torch's flight recorder analyzer",
        "distdbg.export.torch_fr.dumps", ".torch-fr", is_folder=True),
    Format("otlp", "spans as JSON lines, as the OpenTelemetry collector's file exporter writes them",
        "distdbg.export.otel.file", ".otlp.jsonl", is_text=True),
    Format("parquet", "a table of all ops for pandas, polars and DuckDB", "distdbg.export.tables.parquet",
        ".parquet"),
    Format("csv", "a table of all ops for anything that reads tables", "distdbg.export.tables.csv", ".csv",
        is_text=True),
)  # fmt: skip
