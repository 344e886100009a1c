"""The flags of `distdbg run`: one row each; the parser, the variables and the reference page come of it.

All flags of torchrun are here with their names, short forms, defaults and choices; distdbg adds a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: A list is separated by commas; two commas stand for one in an item.
FlagKind = Literal["text", "int", "float", "switch", "list"]
FlagValue = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CommandFlag:
    name: str
    kind: FlagKind
    default: FlagValue
    about: str
    metavar: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    #: Prefixes of its variable: `PET_` is torchrun's; ours is looked at first.
    prefixes: tuple[str, ...] = ("DISTDBG_", "PET_")

    @property
    def dest(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings: -r, --log-dir, --log_dir."""
        return tuple(dict.fromkeys(filter(None, (self.short, self.name, f"--{self.dest}"))))

    @property
    def opposite(self) -> str:
        """What turns off a switch that is on by itself: --no-torch."""
        is_on = self.kind == "switch" and self.default is True
        return f"--no-{self.name.removeprefix('--')}" if is_on else ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables, the first that is set counts."""
        return tuple(f"{prefix}{self.dest.upper()}" for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class FlagSection:
    title: str
    flags: tuple[CommandFlag, ...]


_OURS = ("DISTDBG_",)

SECTIONS: tuple[FlagSection, ...] = (
    FlagSection("hosts and ranks", (
        CommandFlag("--nnodes", "text", "1:1",
            "how many launchers the job has, one for each host: a number, or the least and the most",
            "MIN:MAX"),
        CommandFlag("--nproc-per-node", "text", "1",
            "how many ranks this launcher starts: a number, cpu or gpu for as many as there are of them, "
            "auto for GPUs where there are any and CPUs otherwise", "N", short="-n"),
    )),
    FlagSection("rendezvous: how the launchers find each other", (
        CommandFlag("--rdzv-backend", "text", "static",
            "static: a fixed set of hosts, numbered by --node-rank; c10d: hosts may come and leave; "
            "others as registered", "NAME"),
        CommandFlag("--rdzv-endpoint", "text", "", "where the launchers meet", "HOST:PORT"),
        CommandFlag("--rdzv-id", "text", "none", "the name of the job, the same on all hosts", "NAME"),
        CommandFlag("--rdzv-conf", "text", "", "settings of the rendezvous backend, such as timeout=900",
            "KEY=VALUE,..."),
        CommandFlag("--standalone", "switch", False,
            "a job on one host: no rendezvous, any free port; the other --rdzv flags are ignored"),
    )),
    FlagSection("what is run, and how", (
        CommandFlag("--max-restarts", "int", 0, "how many times all ranks are restarted after a failure",
            "N"),
        CommandFlag("--monitor-interval", "float", 0.1,
            "seconds between two looks at the other hosts; an end of a rank here is seen at once", "SECONDS"),
        CommandFlag("--start-method", "text", "spawn",
            "accepted for compatibility with torchrun: every rank is a process of its own",
            choices=("spawn", "fork", "forkserver")),
        CommandFlag("--event-log-handler", "text", "null", "where events go: null or console", "NAME"),
        CommandFlag("--role", "text", "default", "the role of this launcher's ranks", "NAME"),
        CommandFlag("--module", "switch", False, "the script is the name of a module, as for python -m",
            short="-m"),
        CommandFlag("--no-python", "switch", False, "the script is a program, run without python"),
        CommandFlag("--run-path", "switch", False,
            "run the script by runpy.run_path; wins over --no-python and --module"),
        CommandFlag("--log-dir", "text", None,
            "the folder for the output of the ranks, instead of one in the run's folder", "FOLDER"),
        CommandFlag("--redirects", "text", "0",
            "output into files instead of the terminal: 0 none, 1 stdout, 2 stderr, 3 both; or by local "
            "rank: 0:1,1:2", "STD", short="-r"),
        CommandFlag("--tee", "text", "0", "output into files and to the terminal; numbers as for --redirects",
            "STD", short="-t"),
        CommandFlag("--local-ranks-filter", "text", "",
            "show only the output of these local ranks; files hold all", "N,N,..."),
        CommandFlag("--duplicate-stdout-filters", "list", (),
            "also write the lines of stdout that contain one of these texts into one file; two commas "
            "stand for one", "TEXT,..."),
        CommandFlag("--duplicate-stderr-filters", "list", (), "the same for stderr", "TEXT,..."),
    )),
    FlagSection("a fixed set of hosts", (
        CommandFlag("--node-rank", "int", 0, "the number of this host, from 0; static only", "N"),
        CommandFlag("--master-addr", "text", "127.0.0.1",
            "the address of host 0; static only, without --rdzv-endpoint", "HOST"),
        CommandFlag("--master-port", "int", None,
            "the port on host 0; 29500 when there are several hosts, a free one otherwise", "PORT"),
        CommandFlag("--local-addr", "text", None,
            "the address under which others reach this host; found out when not given", "HOST"),
    )),
    FlagSection("more about the ranks", (
        CommandFlag("--logs-specs", "text", None,
            "only default: classes that replace it are made for torchrun", "NAME", prefixes=_OURS),
        CommandFlag("--numa-binding", "text", None,
            "keep each rank on CPUs near its GPU, or spread the ranks over the CPUs",
            choices=("node", "socket", "exclusive", "core-complex"), prefixes=_OURS),
        CommandFlag("--signals-to-handle", "text", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            "signals that stop the job gracefully", "SIGNAL,..."),
        CommandFlag("--shutdown-timeout", "int", None,
            "seconds between SIGTERM and SIGKILL; 30, or TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "SECONDS"),
        CommandFlag("--virtual-local-rank", "switch", False,
            "LOCAL_RANK is 0 in each rank, and CUDA_VISIBLE_DEVICES its one GPU"),
    )),
    FlagSection("not in torchrun", (
        CommandFlag("--run-dir", "text", None,
            "the folder of the run, instead of one below a private folder of the user", "FOLDER",
            prefixes=_OURS),
        CommandFlag("--no-agent", "switch", False, "start no agent; DISTDBG_AGENT=0 does the same",
            prefixes=()),
        CommandFlag("--on-deadlock", "text", None,
            "what the agent does with a job that provably cannot go on: abort ends it with the verdict, "
            "report says it and lets it run; DISTDBG_ABORT_ON decides when not given",
            choices=("abort", "report"), prefixes=()),
        CommandFlag("--timeout", "float", None,
            "seconds that an op may wait where the program gives no timeout of its own; 1800, or "
            "DISTDBG_TIMEOUT_S", "SECONDS", prefixes=()),
        CommandFlag("--torch", "switch", True,
            "record and check the ops of torch.distributed in the ranks, which the script need not know; "
            "--no-torch leaves them alone", prefixes=_OURS),
        CommandFlag("--debuggable", "switch", False,
            "let distdbg attach stop ranks that run: anyone who may attach can run any code in them",
            prefixes=_OURS),
        CommandFlag("--debug-on-error", "switch", False,
            "a rank with an uncaught exception stops in a debugger before it ends, and the others wait",
            prefixes=_OURS),
        CommandFlag("--metrics-port", "int", None,
            "serve metrics for Prometheus at this port of 127.0.0.1, 0: any free one; DISTDBG_METRICS "
            "does the same", "PORT", prefixes=()),
        CommandFlag("--metrics-address", "text", None,
            "serve them at an address that other hosts reach, which needs DISTDBG_METRICS_TOKEN_FILE",
            "HOST:PORT", prefixes=()),
        CommandFlag("--metrics-file", "text", None,
            "keep the metrics in a file of this folder, for node_exporter's textfile collector", "FOLDER",
            prefixes=_OURS),
        CommandFlag("--metrics-push", "text", None,
            "send the metrics to a Pushgateway while the job runs, and once more at its end", "URL",
            prefixes=_OURS),
        CommandFlag("--otlp", "text", None,
            "send these to an OpenTelemetry collector: traces, metrics, logs, or all; OTEL_* variables "
            "say where it is", "SIGNAL,...", prefixes=_OURS),
        CommandFlag("--agent-listen", "text", None,
            "let the agent answer on TCP too, to those who know the token; off when not given", "HOST:PORT",
            prefixes=_OURS),
    )),
)  # fmt: skip

FLAGS: tuple[CommandFlag, ...] = tuple(flag for section in SECTIONS for flag in section.flags)

#: Only in the older form, `python -m distdbg.launch`.
USE_ENV = CommandFlag(
    "--use-env",
    "switch",
    False,
    "do not pass --local-rank to the script; it reads LOCAL_RANK",
    prefixes=(),
)
