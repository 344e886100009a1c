"""Reads the command line of `distdbg run` by the table of flags.

What is not on the command line is looked for in DISTDBG_<FLAG>, then in torchrun's PET_<FLAG>, where
it has one. Here a value gets its type; what it means is decided in options.py.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from distdbg.errors import ConfigError, UsageError
from distdbg.launch.flag_table import FLAGS, SECTIONS, USE_ENV, CommandFlag, FlagKind, FlagValue

_TRUE_WORDS = frozenset({"true", "yes", "on"})
_FALSE_WORDS = frozenset({"false", "no", "off"})
_SCRIPT_ABOUT = "a Python file, or what --module, --no-python or --run-path make of it"


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError in our words, and knows what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the process."""
        hint = f"{self.prog} --help lists the flags"
        if message.startswith("unrecognized arguments: "):
            word = message.partition(": ")[2].split()[0].partition("=")[0]
            import difflib  # for whoever mistypes alone

            near = difflib.get_close_matches(word, self._option_string_actions, 1)
            message = f"unknown flag {word}"
            hint = f"did you mean {near[0]}? {hint}" if near else hint
        elif message.startswith("the following arguments are required"):
            message = "no script is given"
        elif match := re.fullmatch(r"argument (\S+): (.*)", message, re.DOTALL):
            name = next(name for name in match[1].split("/") if name.startswith("--"))
            message = f"{name}{'' if match[2].startswith('=') else ': '}{match[2]}"
        raise UsageError(f"{self.prog}: {message}", hint=hint)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """One flag that matches by its two spellings is not ambiguous; newer versions of Python agree."""
        found: list[Any] = super()._get_option_tuples(option_string)
        return found[:1] if len({id(each[0]) for each in found}) == 1 else found


class _Help(argparse.HelpFormatter):
    """Leaves out the spelling with underscores, which is true of all flags alike."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        text = super()._format_action_invocation(action)
        return re.sub(r", --\w*_.*", "", text)


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
        epilog="A flag may be written with _ for -. One that is not given is read from the variable "
        "DISTDBG_<FLAG>, then from torchrun's PET_<FLAG>.",
        formatter_class=_Help,
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


def read_default(flag: CommandFlag, environ: Mapping[str, str]) -> FlagValue:
    """Return the value of the first variable of the flag that is set, else that of the table."""
    for name in flag.variables:
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            return convert(flag, text)
        except ValueError as error:
            raise ConfigError(
                f"the variable {name}={text!r} is not valid; expected {error}",
                details=[f"it sets the flag {flag.name}, which was not given"],
            ) from None
    return flag.default


def convert(flag: CommandFlag, text: str) -> FlagValue:
    """Return the value that a text means; ValueError says what would fit."""
    try:
        value: FlagValue = _PARSERS[flag.kind](text)
    except ValueError:
        raise ValueError(_EXPECTED[flag.kind]) from None
    if flag.choices and value not in flag.choices:
        raise ValueError(f"one of {', '.join(flag.choices)}")
    return value


def _add(group: argparse._ArgumentGroup, flag: CommandFlag) -> None:
    about = flag.about.replace("%", "%%")
    if flag.kind == "switch":
        group.add_argument(*flag.names, dest=flag.dest, action="store_true", help=about)
        if flag.opposite:
            group.add_argument(
                flag.opposite, dest=flag.dest, action="store_false", help=argparse.SUPPRESS
            )
        return
    shown = flag.default not in (None, "", ())
    group.add_argument(
        *flag.names,
        dest=flag.dest,
        default=flag.default,
        type=partial(_convert_argument, flag),
        metavar=flag.metavar or "|".join(flag.choices),
        help=f"{about} (default: {flag.default})" if shown else about,
    )


def _convert_argument(flag: CommandFlag, text: str) -> FlagValue:
    try:
        return convert(flag, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"={text!r} is not valid; expected {error}") from None


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


_PARSERS: dict[FlagKind, Callable[[str], Any]] = {
    "text": str,
    "int": int,
    "float": _parse_float,
    "switch": _parse_switch,
    "list": _parse_list,
}
_EXPECTED: dict[FlagKind, str] = {
    "text": "text",
    "int": "a whole number",
    "float": "a number",
    "switch": "1 or 0",
    "list": "texts, separated by commas",
}
