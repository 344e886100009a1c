"""The table of commands. A command's module has `main(argv) -> int` and is imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CliCommand:
    name: str
    about: str
    arguments: str = ""

    @property
    def module(self) -> str:
        """It is called as the command, with `_` behind a word of Python's own."""
        return f"distdbg.cli.{self.name}{'_' if self.name in ('exec', 'break') else ''}"


COMMANDS: tuple[CliCommand, ...] = (
    CliCommand("run", "start, watch, restart and clean up the ranks of a job", "[flags] SCRIPT [ARGUMENTS]"),
    CliCommand("ps", "the running jobs, and the state of each rank", "[RUN] [--json]"),
    CliCommand("top", "a job while it runs, or one that is over, in a dashboard",
        "[RUN | HOST:PORT | ssh://HOST] [--replay] [--record FILE] [--once] [--web] [--readonly]"),
    CliCommand("stacks", "where each rank of a running job is, by its stacks",
        "[RUN] [--rank LIST] [--json]"),
    CliCommand("attach", "a debugger on a rank of a running job", "[RUN] [--rank N]"),
    CliCommand("exec", "the value of an expression on ranks of a running job",
        "[RUN] (--rank LIST | --all) EXPR"),
    CliCommand("pause", "stop all deadlines of a running job", "[RUN]"),
    CliCommand("resume", "let the deadlines of a paused job run on", "[RUN]"),
    CliCommand("break", "stop ranks of a running job at ops, and let them go on",
        "[RULE] [RUN] [--list] [--clear ID|all] [--continue RANKS|all] [--json]"),
    CliCommand("stop", "end a running job", "[RUN] [--abort WHY] [--yes]"),
    CliCommand("exporter", "metrics of all runs of this host, for Prometheus",
        "[RUN...] [--port N] [--address HOST] [--once FILE]"),
    CliCommand("analyze", "what went wrong with a job: cause, ranks, lines, and what to do",
        "[PATH...] [--json] [--html FILE]"),
    CliCommand("logs", "what the ranks of a run printed, by time, equal lines folded",
        "[RUN] [--rank LIST] [--stream out|err] [--grep REGEX] [--since WHEN] [-f] [--no-fold] [--json]"),
    CliCommand("certificate", "what a client of /metrics has to trust under DISTDBG_TLS=1, in PEM"),
    CliCommand("record", "print what the ranks of a run have recorded", "[PATH] [--ops N] [--json]"),
    CliCommand("query", "the ops of a run that fit an expression, or what they sum up to",
        "[RUN...] [EXPR] [--by KEYS] [--format table|csv|json]"),
    CliCommand("diff", "what got slower between two runs, and what order changed",
        "RUN_A RUN_B [--threshold SHARE] [--json]"),
    CliCommand("plan", "how an op would be carried out on ranks of several hosts, and how long it would take",
        "KIND --ranks N [--hosts H] [--size SIZE] [--algo NAME] [--svg FILE] [--force] [--json]"),
    CliCommand("tune", "how data moves between the ranks of this host, as measured on it",
        "[--show | --redo] [--json]"),
    CliCommand("export", "a run in other tools' formats: Perfetto, Chrome, torch, OTLP, tables",
        "[RUN] --to FORMAT [--output PATH] [--ranks LIST] [--since WHEN] [--force]"),
)  # fmt: skip
