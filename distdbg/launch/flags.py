"""The flags of `distdbg run`: one table; the parser, the variables and the reference page come of it.

All flags of torchrun are here with their names, short forms, defaults and choices; `distdbg` adds a
few. What is not on the command line is looked for in DISTDBG_<FLAG>, then in torchrun's PET_<FLAG>,
where it has one. Here a value gets its type; what it means is decided in options.py.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from distdbg.errors import ConfigError, UsageError

#: A list is separated by commas; two commas stand for one in an item.
FlagKind = Literal["text", "int", "float", "switch", "list"]
FlagValue = str | int | float | bool | tuple[str, ...] | None

_TRUE_WORDS = frozenset({"true", "yes", "on"})
_FALSE_WORDS = frozenset({"false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the table."""

    name: str
    kind: FlagKind
    default: FlagValue
    about: str
    metavar: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    #: Whose variable holds it: `PET_` is torchrun's; ours is looked at first.
    prefixes: tuple[str, ...] = ("DISTDBG_", "PET_")

    @property
    def dest(self) -> str:
        """The attribute of the namespace."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings: -r, --log-dir, --log_dir."""
        return tuple(dict.fromkeys(filter(None, (self.short, self.name, f"--{self.dest}"))))

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables, the first that is set counts."""
        return tuple(f"{prefix}{self.dest.upper()}" for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class Section:
    """Flags that belong together."""

    title: str
    flags: tuple[Flag, ...]


_OURS = ("DISTDBG_",)

SECTIONS: tuple[Section, ...] = (
    Section(
        "hosts and ranks",
        (
            Flag(
                "--nnodes",
                "text",
                "1:1",
                "how many launchers take part, one for each host: a number, or the least and the "
                "most",
                "MIN:MAX",
            ),
            Flag(
                "--nproc-per-node",
                "text",
                "1",
                "how many ranks this launcher starts: a number, cpu or gpu for as many as there are "
                "of them, auto for GPUs where there are any and CPUs otherwise",
                "N",
            ),
        ),
    ),
    Section(
        "rendezvous: how the launchers find each other",
        (
            Flag(
                "--rdzv-backend",
                "text",
                "static",
                "static: a fixed set of hosts, numbered by --node-rank; c10d: hosts may come and "
                "leave; others as registered",
                "NAME",
            ),
            Flag("--rdzv-endpoint", "text", "", "where the launchers meet", "HOST:PORT"),
            Flag("--rdzv-id", "text", "none", "the name of the job, the same on all hosts", "NAME"),
            Flag(
                "--rdzv-conf",
                "text",
                "",
                "settings of the rendezvous backend, such as timeout=900",
                "KEY=VALUE,...",
            ),
            Flag(
                "--standalone",
                "switch",
                False,
                "one launcher alone, which meets nobody and takes a free port; the other --rdzv "
                "flags are ignored",
            ),
        ),
    ),
    Section(
        "what is run, and how",
        (
            Flag(
                "--max-restarts",
                "int",
                0,
                "how often all ranks are started again after a failure",
                "N",
            ),
            Flag(
                "--monitor-interval",
                "float",
                0.1,
                "seconds between two looks at the other hosts; an end of a rank here is seen at "
                "once",
                "SECONDS",
            ),
            Flag(
                "--start-method",
                "text",
                "spawn",
                "accepted for torchrun's sake: every rank is a process of its own",
                choices=("spawn", "fork", "forkserver"),
            ),
            Flag("--event-log-handler", "text", "null", "where events go: null or console", "NAME"),
            Flag("--role", "text", "default", "the role of this launcher's ranks", "NAME"),
            Flag(
                "--module",
                "switch",
                False,
                "the script is the name of a module, as for python -m",
                short="-m",
            ),
            Flag("--no-python", "switch", False, "the script is a program, run without python"),
            Flag(
                "--run-path",
                "switch",
                False,
                "run the script by runpy.run_path; wins over --no-python and --module",
            ),
            Flag(
                "--log-dir",
                "text",
                None,
                "the folder for the output of the ranks, instead of one in the run's folder",
                "FOLDER",
            ),
            Flag(
                "--redirects",
                "text",
                "0",
                "output into files instead of the terminal: 0 none, 1 stdout, 2 stderr, 3 both; "
                "or by local rank: 0:1,1:2",
                "STD",
                short="-r",
            ),
            Flag(
                "--tee",
                "text",
                "0",
                "output into files and to the terminal; numbers as for --redirects",
                "STD",
                short="-t",
            ),
            Flag(
                "--local-ranks-filter",
                "text",
                "",
                "show only the output of these local ranks; files hold all",
                "N,N,...",
            ),
            Flag(
                "--duplicate-stdout-filters",
                "list",
                (),
                "also write the lines of stdout that contain one of these texts into one file; two "
                "commas stand for one",
                "TEXT,...",
            ),
            Flag(
                "--duplicate-stderr-filters",
                "list",
                (),
                "the same for stderr",
                "TEXT,...",
            ),
        ),
    ),
    Section(
        "a fixed set of hosts",
        (
            Flag("--node-rank", "int", 0, "the number of this host, from 0; static only", "N"),
            Flag(
                "--master-addr",
                "text",
                "127.0.0.1",
                "the address of host 0; static only, without --rdzv-endpoint",
                "HOST",
            ),
            Flag(
                "--master-port",
                "int",
                None,
                "the port on host 0; 29500 when there are several hosts, a free one otherwise",
                "PORT",
            ),
            Flag(
                "--local-addr",
                "text",
                None,
                "the address under which others reach this host; found out when not given",
                "HOST",
            ),
            Flag(
                "--logs-specs",
                "text",
                None,
                "only default: classes that replace it are made for torchrun",
                "NAME",
                prefixes=_OURS,
            ),
            Flag(
                "--numa-binding",
                "text",
                None,
                "keep each rank on CPUs near its GPU, or spread the ranks over the CPUs",
                choices=("node", "socket", "exclusive", "core-complex"),
                prefixes=_OURS,
            ),
            Flag(
                "--signals-to-handle",
                "text",
                "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                "signals that end the job in good order",
                "SIGNAL,...",
            ),
            Flag(
                "--shutdown-timeout",
                "int",
                None,
                "seconds between SIGTERM and SIGKILL; 30, or TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                "SECONDS",
            ),
            Flag(
                "--virtual-local-rank",
                "switch",
                False,
                "LOCAL_RANK is 0 in each rank, and CUDA_VISIBLE_DEVICES its one GPU",
            ),
        ),
    ),
    Section(
        "distdbg's own",
        (
            Flag(
                "--run-dir",
                "text",
                None,
                "the folder of the run, instead of one below a private folder of the user",
                "FOLDER",
                prefixes=_OURS,
            ),
            Flag(
                "--no-agent",
                "switch",
                False,
                "start no agent; DISTDBG_AGENT=0 does the same",
                prefixes=(),
            ),
            Flag(
                "--agent-listen",
                "text",
                None,
                "let the agent answer on TCP too, to those who know the token; off when not given",
                "HOST:PORT",
                prefixes=_OURS,
            ),
        ),
    ),
)

FLAGS: tuple[Flag, ...] = tuple(flag for section in SECTIONS for flag in section.flags)

#: Only in the older form, `python -m distdbg.launch`.
USE_ENV = Flag(
    "--use-env",
    "switch",
    False,
    "do not pass --local-rank to the script; it reads LOCAL_RANK",
    prefixes=(),
)

_SCRIPT_ABOUT = "a Python file, or what --module, --no-python or --run-path make of it"


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError, and knows what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the process."""
        hint = f"{self.prog} --help lists the flags"
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            word = unknown.split()[0].partition("=")[0]
            near = difflib.get_close_matches(word, self._option_string_actions, 1)
            message = f"unknown flag {word}" if word.startswith("-") else message
            hint = f"did you mean {near[0]}? {hint}" if near else hint
        raise UsageError(f"{self.prog}: {message}", hint=hint)


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    prog: str = "distdbg run",
    is_old_form: bool = False,
) -> argparse.Namespace:
    """Return all flags, and `training_script`, `training_script_args`, under torchrun's names.

    `is_old_form` is torch.distributed.launch's: without --use-env, each script gets --local-rank.
    UsageError for a bad command line, ConfigError for a bad variable; --help prints and exits.
    """
    parser = make_parser(prog=prog, is_old_form=is_old_form)
    defaults = {flag.dest: read_default(flag, environ) for flag in FLAGS}
    parser.set_defaults(**defaults, use_env=not is_old_form)
    return parser.parse_args(list(argv))


def make_parser(*, prog: str = "distdbg run", is_old_form: bool = False) -> Parser:
    """Make the parser with the defaults of the table."""
    parser = Parser(
        prog=prog,
        usage="%(prog)s [flags] script [arguments of the script]",
        description="Start, watch, restart and clean up the ranks of a job.",
        epilog="A flag that is not given is read from DISTDBG_<FLAG>, then from PET_<FLAG>.",
    )
    for section in SECTIONS:
        group = parser.add_argument_group(section.title)
        for flag in section.flags:
            _add(group, flag)
        if is_old_form and section is SECTIONS[-1]:
            _add(group, USE_ENV)
    parser.add_argument("training_script", metavar="script", help=_SCRIPT_ABOUT)
    parser.add_argument(
        "training_script_args",
        metavar="arguments",
        nargs=argparse.REMAINDER,
        help="passed on to the script, with ${local_rank} replaced",
    )
    return parser


def read_default(flag: Flag, environ: Mapping[str, str]) -> FlagValue:
    """Return the value of the first variable of the flag that is set, else that of the table."""
    for name in flag.variables:
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            value: FlagValue = _PARSERS[flag.kind](text)
        except ValueError:
            expected = {"int": "a whole number", "float": "a number"}.get(flag.kind, "1 or 0")
            raise _bad_variable(flag, name, text, expected) from None
        if flag.choices and value not in flag.choices:
            raise _bad_variable(flag, name, text, f"one of {', '.join(flag.choices)}")
        return value
    return flag.default


def _bad_variable(flag: Flag, name: str, text: str, expected: str) -> ConfigError:
    return ConfigError(
        f"the variable {name}={text!r} is not valid; expected {expected}",
        details=[f"it stands for the flag {flag.name}, which was not given"],
    )


def _add(group: argparse._ArgumentGroup, flag: Flag) -> None:
    default = ",".join(flag.default) if isinstance(flag.default, tuple) else flag.default
    about = flag.about.replace("%", "%%")
    if flag.kind == "switch":
        group.add_argument(*flag.names, dest=flag.dest, action="store_true", help=about)
        return
    group.add_argument(
        *flag.names,
        dest=flag.dest,
        default=flag.default,
        type=_PARSERS[flag.kind],
        choices=flag.choices or None,
        metavar=flag.metavar or None,
        help=about if default in (None, "") else f"{about} (default: {default})",
    )


def _parse_switch(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE_WORDS or lowered in _FALSE_WORDS:
        return lowered in _TRUE_WORDS
    return bool(int(text))  # any number but 0 is on for torchrun


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _parse_list(text: str) -> tuple[str, ...]:
    # NUL cannot be in an argument, so it can stand for the comma meanwhile.
    items = text.replace(",,", "\0").split(",")
    return tuple(item.replace("\0", ",") for item in items if item)


# argparse takes the name of a type for its message: "invalid int value".
_parse_float.__name__ = "float"
_parse_list.__name__ = "list"
_PARSERS: dict[FlagKind, Callable[[str], Any]] = {
    "text": str,
    "int": int,
    "float": _parse_float,
    "switch": _parse_switch,
    "list": _parse_list,
}
