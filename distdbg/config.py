"""Every DISTDBG_* variable: name, type, default, one sentence; nothing else reads them by name.

A value is read when it is asked for, not at import, so a test or a launcher may set the
environment first. A bad value raises ConfigError naming the variable, the value and what fits. The
variables that stand for flags of the launcher are in launch/flag_table.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from distdbg.errors import ConfigError

Value = str | int | float | bool | None
ValueKind = Literal["str", "int", "float", "bool"]

#: A hundred years: a time that is longer counts as this, which fits every clock and type.
LONGEST_S = 3.2e9

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class Variable:
    """One row of the table."""

    name: str
    kind: ValueKind
    default: Value
    about: str
    #: Closed set of values, lower case; empty: anything of the kind.
    choices: tuple[str, ...] = ()
    #: Other tools' variables that are read when ours is not set.
    aliases: tuple[str, ...] = ()


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "DISTDBG_ABORT_ON",
        "str",
        "dead,mismatch,deadlock",
        "Which proven verdicts may abort the job, separated by commas; none: the agent only reports. "
        "`distdbg run --on-deadlock` sets it.",
    ),
    Variable(
        "DISTDBG_AGENT",
        "bool",
        True,
        "Whether the first rank of each host, or the launcher, starts the agent of the host.",
    ),
    Variable(
        "DISTDBG_ALGO",
        "str",
        None,
        "Which algorithms carry out ops between hosts: KIND[@SIZE]=NAME,..., for blocks of at most SIZE, as "
        "`all_reduce@64KiB=doubling,all_reduce=ring`; `distdbg plan` lists the names. That of rank 0 counts.",
    ),
    Variable(
        "DISTDBG_BREAK",
        "str",
        None,
        "Where ranks stop in a debugger: rules as `rank=3,kind=all_reduce,seq>=42`, parted by `;`.",
    ),
    Variable(
        "DISTDBG_CHECKSUM_EVERY",
        "int",
        0,
        "Compare the outputs of every so many ops whose outputs must be equal; 0: never. Rank 0 decides.",
    ),
    Variable(
        "DISTDBG_CHECK_BUFFERS",
        "bool",
        False,
        "Whether to notice arrays that change while an asynchronous op owns them; group rank 0 decides.",
    ),
    Variable(
        "DISTDBG_CHECK_NONFINITE",
        "bool",
        False,
        "Whether NaN and Inf in inputs are an error before they spread; group rank 0 decides.",
    ),
    Variable(
        "DISTDBG_CHECK_ORDER",
        "bool",
        False,
        "Whether to warn of ops that ranks seem to issue in different orders; group rank 0 decides.",
    ),
    Variable(
        "DISTDBG_DEBUG",
        "str",
        None,
        "How much is compared: off, info or detail; detail when not set. Torch's OFF counts as not set.",
        choices=("off", "info", "detail"),
        aliases=("TORCH_DISTRIBUTED_DEBUG",),
    ),
    Variable(
        "DISTDBG_DEBUGGABLE",
        "bool",
        False,
        "Whether debuggers may be attached to ranks that run; `distdbg run --debuggable` sets it.",
    ),
    Variable(
        "DISTDBG_DEBUGGER",
        "str",
        "pdb",
        "The debugger of a stopped rank: pdb, ipdb, pudb, or module.function, called as breakpoint() would.",
    ),
    Variable(
        "DISTDBG_DEBUG_ON_ERROR",
        "bool",
        False,
        "Whether a rank stops in a debugger at an uncaught exception, before it ends.",
    ),
    Variable(
        "DISTDBG_ERROR_FILE",
        "str",
        None,
        "Where a rank writes what ended it, as JSON; set by the launcher.",
        aliases=("TORCHELASTIC_ERROR_FILE",),
    ),
    Variable(
        "DISTDBG_EXPORT_END_S",
        "float",
        2.0,
        "Seconds that an agent has, when the job is over, to send and write what is left.",
    ),
    Variable(
        "DISTDBG_GPU_IPC",
        "str",
        "on",
        "Whether ranks of one host open each other's GPU memory in ops of backend gloo: on, off, or always, "
        "which takes arrays of any size, for tests. off on one rank counts for all in collectives, and for "
        "its own messages.",
        choices=("on", "off", "always"),
    ),
    Variable(
        "DISTDBG_HOST",
        "str",
        None,
        "What this host is called in records and messages; the system's own name when not set.",
    ),
    Variable(
        "DISTDBG_KEEPALIVE_S",
        "float",
        5.0,
        "Seconds after which ranks of a host that has fallen silent are lost to those of other hosts.",
    ),
    Variable(
        "DISTDBG_KNOWN_CALLS",
        "bool",
        True,
        "Whether a blocking call, or an asynchronous one on at most 256 KiB, that looks like one of before "
        "is carried out without the Python code that checked that one; for comparing the two.",
    ),
    Variable(
        "DISTDBG_LINK",
        "str",
        None,
        "Latency and bandwidth between hosts, as 25us,10Gb, from which algorithms are chosen. That of rank 0 "
        "counts. Not set: measured once in a run for each pair of hosts, with their first group.",
    ),
    Variable(
        "DISTDBG_LINK_CHECKSUM",
        "bool",
        False,
        "Whether messages between hosts carry checksums, for links that change data: an op fails, and "
        "computes nothing from them. Rank 0 decides.",
    ),
    Variable(
        "DISTDBG_LOG_LEVEL",
        "str",
        None,
        "How loud the log is, 0 to 3 for short; DISTDBG_DEBUG may raise info. Not set: left to Python.",
        choices=("info", "warning", "error", "fatal", "0", "1", "2", "3"),
        aliases=("TORCH_CPP_LOG_LEVEL",),
    ),
    Variable(
        "DISTDBG_METRICS",
        "str",
        None,
        "Where each host's agent serves metrics: a port of 127.0.0.1, or HOST:PORT; as `--metrics-port`.",
    ),
    Variable(
        "DISTDBG_METRICS_FILE",
        "str",
        None,
        "A folder for the agent's metrics as a text file, as node_exporter's textfile collector reads them.",
    ),
    Variable(
        "DISTDBG_METRICS_PUSH",
        "str",
        None,
        "The URL of a Pushgateway that gets the metrics while the job runs, and once more at its end.",
    ),
    Variable(
        "DISTDBG_METRICS_TOKEN_FILE",
        "str",
        None,
        "A file, private to the user, with the bearer token that a scraper from another host must show.",
    ),
    Variable(
        "DISTDBG_METRICS_USERS",
        "str",
        "root,prometheus",
        "The users of this host, beside your own, that may read metrics over 127.0.0.1 without a token.",
    ),
    Variable(
        "DISTDBG_NVTX",
        "bool",
        None,
        "Whether ops and spans of a watched torch job are NVTX ranges too, where torch has CUDA; not set: "
        "under a profiler that reads them.",
    ),
    Variable(
        "DISTDBG_OTLP",
        "str",
        None,
        "What agents send to an OpenTelemetry collector: traces, metrics, logs, separated by commas, or all.",
    ),
    Variable(
        "DISTDBG_OTLP_SLOW_S",
        "float",
        1.0,
        "Seconds from which on the spans of an op are sent whatever the sampler says; 0: never for its time.",
    ),
    Variable(
        "DISTDBG_OTLP_SPANS_PER_S",
        "float",
        100.0,
        "Spans that an agent sends in a second, as a rule; of more, whole traces are left out and counted.",
    ),
    Variable(
        "DISTDBG_PINNED_NBYTES",
        "int",
        768 << 20,
        "How much pinned memory a process takes for arrays on GPUs that go through the host. A third each is "
        "for sends and for receives in pieces, which wait for room for half a second, and for other ops. "
        "Beyond that they take memory that is not pinned.",
    ),
    Variable(
        "DISTDBG_RECORD_OPS",
        "int",
        4096,
        "How many ops the record of a rank keeps; rounded up to a power of two.",
    ),
    Variable(
        "DISTDBG_RUN",
        "str",
        None,
        "The name of this run; made by rank 0 when no launcher has set it.",
    ),
    Variable(
        "DISTDBG_RUNS_DAYS",
        "int",
        30,
        "How many days the runs in the private folder of the user are kept; 0: until there is no room.",
    ),
    Variable(
        "DISTDBG_RUNS_NBYTES",
        "int",
        1 << 30,
        "How much the runs in the private folder of the user may take; the oldest are removed.",
    ),
    Variable(
        "DISTDBG_RUN_DIR",
        "str",
        None,
        "The folder for the records of this run; without it, one below a private folder of the user.",
    ),
    Variable(
        "DISTDBG_SERVED_AS",
        "str",
        None,
        "IP:PORT,...: where clients dial the store or agent of this process, behind a tunnel or NAT.",
    ),
    Variable(
        "DISTDBG_SHARED_NBYTES",
        "int",
        None,
        "Bytes of shared arrays (`distdbg.empty`) that a rank may have; not set: half of the memory of the "
        "host or its cgroup. 0: they are ordinary arrays.",
    ),
    Variable(
        "DISTDBG_SINGLE_COPY",
        "bool",
        True,
        "Whether ranks of a host reach each other's memory directly; 0 goes through shared memory.",
    ),
    Variable(
        "DISTDBG_SLOT_NBYTES",
        "int",
        None,
        "Bytes of shared memory for each half of a rank's slot, at most 1 GiB; read by rank 0 of each group.",
    ),
    Variable(
        "DISTDBG_SOCKET_IFNAME",
        "str",
        None,
        "Network interfaces that other hosts reach this one at, the preferred first, separated by commas.",
        aliases=("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),
    ),
    Variable(
        "DISTDBG_SSH_PYTHON",
        "str",
        "python3",
        "The Python that has distdbg on hosts that are reached as ssh://HOST, as the shell there finds it.",
    ),
    Variable(
        "DISTDBG_STACKS",
        "str",
        "auto",
        "How the agent takes stacks: with py-spy where it is installed, or by faulthandler's signal alone.",
        choices=("auto", "faulthandler"),
    ),
    Variable(
        "DISTDBG_STORE",
        "str",
        None,
        "The URL where the ranks meet when init_process_group is given neither URL nor store.",
    ),
    Variable(
        "DISTDBG_STRICT_MODES",
        "bool",
        True,
        "Refuse a DISTDBG_RUN_DIR where other users could put files or links, as sshd does.",
    ),
    Variable(
        "DISTDBG_TCP_STREAMS",
        "int",
        1,
        "Connections by which a rank sends messages of 512 KiB and more to one of another host, 1 to 8. With "
        "TLS always one.",
    ),
    Variable(
        "DISTDBG_TIMEOUT_S",
        "float",
        1800.0,
        "Seconds an op or the creation of a group may take when no timeout is passed; more than a hundred "
        "years count as that.",
        aliases=("DISTDBG_TIMEOUT",),
    ),
    Variable(
        "DISTDBG_TLS",
        "bool",
        False,
        "Whether all connections of the run are encrypted; the same on all hosts. Needs `distdbg[tls]`, or "
        "certificates of your own.",
    ),
    Variable(
        "DISTDBG_TLS_CA",
        "str",
        None,
        "With DISTDBG_TLS=1: a PEM file with the authority that signed the certificates of all processes.",
    ),
    Variable(
        "DISTDBG_TLS_CERT",
        "str",
        None,
        "With DISTDBG_TLS=1: a PEM file with the certificate of this process, in place of that of the run.",
    ),
    Variable(
        "DISTDBG_TLS_KEY",
        "str",
        None,
        "With DISTDBG_TLS=1: a PEM file with the private key of DISTDBG_TLS_CERT, without a password.",
    ),
    Variable(
        "DISTDBG_TOKEN",
        "str",
        None,
        "The secret of the run, set by the launcher; every connection is authenticated with it.",
    ),
    Variable(
        "DISTDBG_TOKEN_FILE",
        "str",
        None,
        "A file, private to the user, that holds the secret of the run when DISTDBG_TOKEN is not set.",
    ),
    Variable(
        "DISTDBG_TORCH",
        "bool",
        False,
        "Whether the torch.distributed groups of this process are recorded and checked; "
        "`distdbg run` sets it, and `distdbg run --no-torch` clears it.",
    ),
    Variable(
        "DISTDBG_TORCH_SUMS",
        "str",
        "gloo",
        "The order in which the backend `distdbg` of torch adds up floating point numbers of three ranks and "
        "more on one host: gloo's, for its results to the last bit, or ranks: that of the ranks, whatever "
        "the size of the array. Alike on all ranks.",
        choices=("gloo", "ranks"),
    ),
    Variable(
        "DISTDBG_TRACEBACK",
        "str",
        "short",
        "Tracebacks that ranks print: `short` hides the frames of distdbg, and of ranks that fail because of "
        "another one prints one line; `full` shows all.",
        choices=("short", "full"),
    ),
    Variable(
        "DISTDBG_TRANSPORT",
        "str",
        "auto",
        "How ranks exchange data: auto is shared memory within a host, and between hosts UCX where all have "
        "it and a fabric is up, else TCP; tcp and ucx also within a host.",
        choices=("auto", "tcp", "ucx"),
    ),
    Variable(
        "DISTDBG_TUNE",
        "str",
        "on",
        "Whether what `distdbg tune` has measured decides how data moves within a host, and a job's end "
        "measures it where nobody has: on, off, or rules: `all_reduce@1MiB=half,spins=200`. Rank 0 decides.",
    ),
    Variable(
        "DISTDBG_UNWRAPPED",
        "bool",
        False,
        "For measuring only: nothing is compared and nothing recorded.",
    ),
)

_BY_NAME = {variable.name: variable for variable in VARIABLES}


def read_setting(name: str, environ: Mapping[str, str] | None = None) -> Value:
    """Return the value of one variable of the table, or its default."""
    variable = _BY_NAME[name]
    environ = os.environ if environ is None else environ
    for candidate in (variable.name, *variable.aliases):
        text = environ.get(candidate)
        if text is not None and text.strip():
            return _parse(variable, candidate, text.strip())
    return variable.default


def read_str(name: str, environ: Mapping[str, str] | None = None) -> str:
    """`read_setting` for a variable of kind str that has a default."""
    return str(read_setting(name, environ))


def read_float(name: str, environ: Mapping[str, str] | None = None) -> float:
    """`read_setting` for a variable of kind float that has a default."""
    value = read_setting(name, environ)
    assert isinstance(value, (int, float))  # the table's kind and default say so
    return float(value)


def read_int(name: str, environ: Mapping[str, str] | None = None) -> int:
    """`read_setting` for a variable of kind int that has a default."""
    value = read_setting(name, environ)
    assert isinstance(value, int)  # the table's kind and default say so
    return value


def _parse(variable: Variable, name: str, text: str) -> Value:
    lowered = text.lower()
    if variable.choices:
        if lowered not in variable.choices:
            raise _bad(name, text, "one of " + ", ".join(variable.choices))
        return lowered
    if variable.kind == "bool":
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
        raise _bad(name, text, "1 or 0")
    if variable.kind == "str":
        return text
    try:
        number = int(text) if variable.kind == "int" else float(text)
    except ValueError:
        number = -1
    if not 0 <= number < math.inf:
        whole = "whole " if variable.kind == "int" else ""
        raise _bad(name, text, f"a {whole}number of at least 0")
    return min(number, LONGEST_S) if isinstance(number, float) else number


def _bad(name: str, text: str, expected: str) -> ConfigError:
    return ConfigError(f"the variable {name}={text!r} is not valid; expected {expected}")
