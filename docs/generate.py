"""Writes the reference pages and the stub that are made from the source; `PAGES` lists them.

python docs/generate.py            write them
python docs/generate.py --check    exit 1 and name those that are not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import distdbg
from distdbg import config
from distdbg.cli.commands import COMMANDS
from distdbg.control.break_fields import ABOUT_ON, FIELDS, OPERATORS
from distdbg.control.layout import MAX_BREAK_NBYTES
from distdbg.diagnose.finding import FINDING_KINDS
from distdbg.launch.flag_table import SECTIONS, USE_ENV, CommandFlag
from distdbg.render.schema import OBJECTS, SCHEMA
from distdbg.tui.app import TopApp
from distdbg.tui.commands import COMMANDS as TOP_COMMANDS
from distdbg.tui.cursor_view import CursorView
from distdbg.tui.keys import keys_of
from distdbg.tui.line import Line
from distdbg.tui.sheet import Sheet
from distdbg.tui.table import RowTable
from distdbg.tui.time_lanes import TimeLanes
from distdbg.tui.views import VIEWS, TimelineView

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from control_layout import control_layout_page
from errors_page import error_classes, error_sections
from functional_page import functional_page as functional_ops
from hints_page import hints_page as source_hints
from metrics_page import metrics_page as metrics_tables
from otel_page import otel_page as otel_tables
from other_variables import other_variables
from parity_table import parity_page
from plans_page import drawn_plans
from record_layout import layout_page
from tables_page import tables_page as table_columns

if TYPE_CHECKING:
    from textual.binding import BindingType

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- Made by docs/generate.py from {source}; edit that, then run `make docs`. -->\n\n"

#: What `distdbg.launch.environment` tells a rank; a test compares the names.
RANK_VARIABLES = (
    ("`RANK`, `WORLD_SIZE`", "its number among all ranks of the job, and how many there are"),
    ("`LOCAL_RANK`, `LOCAL_WORLD_SIZE`", "the same on its host"),
    ("`GROUP_RANK`, `GROUP_WORLD_SIZE`", "the number of its host, and how many hosts there are"),
    ("`ROLE_NAME`, `ROLE_RANK`, `ROLE_WORLD_SIZE`", "`--role`, and its place among ranks with it"),
    ("`MASTER_ADDR`, `MASTER_PORT`", "where rank 0 of torch serves its store"),
    ("`TORCHELASTIC_RESTART_COUNT`, `TORCHELASTIC_MAX_RESTARTS`", "restarts so far, and allowed"),
    ("`TORCHELASTIC_RUN_ID`", "`--rdzv-id`, or a name by chance for a job alone"),
    ("`TORCHELASTIC_USE_AGENT_STORE`", "`False`: rank 0 serves torch's store itself"),
    ("`TORCHELASTIC_SIGNALS_TO_HANDLE`", "`--signals-to-handle`"),
    ("`TORCHELASTIC_ERROR_FILE`, `DISTDBG_ERROR_FILE`", "where to write what ended it"),
    ("`TORCH_NCCL_ASYNC_ERROR_HANDLING`", "`1` unless it is set"),
    ("`OMP_NUM_THREADS`", "`1` unless it is set, where a host has several ranks"),
    ("`PYTHONFAULTHANDLER`", "`1` unless it is set: a crash of native code prints its stack"),
    ("`CUDA_VISIBLE_DEVICES`", "its one GPU, with `--virtual-local-rank`"),
    ("`DISTDBG_STORE`, `DISTDBG_TOKEN`", "where ranks meet, and the secret of the run"),
    ("`DISTDBG_RUN`, `DISTDBG_RUN_DIR`, `DISTDBG_HOST`", "where its record goes, and its host"),
    ("`DISTDBG_AGENT`", "`0`: the launcher has started the agent"),
    ("`DISTDBG_TORCH`", "`1`: groups of torch.distributed are watched; `0` with `--no-torch`"),
)
OTHER_VARIABLES = (
    (
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
        "what teed lines begin with; `${role_name}`, `${local_rank}` and `${rank}` are replaced",
    ),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "`--shutdown-timeout` where that is not given"),
    ("PYTHON_EXEC", "the Python that runs the script, instead of the launcher's"),
)


def env_page() -> str:
    """One row per variable of distdbg.config."""
    lines = [
        MADE.format(source="distdbg/config.py") + "# Environment variables",
        "",
        "A variable is read when it is needed, not when distdbg is imported. A value that does",
        "not fit raises `ConfigError` and names the variable, the value and what would fit. Where",
        "a row names another tool's variable, that one is read when ours is not set. Each flag of",
        "`distdbg run` can be given by a variable too: [its flags](launch-flags.md).",
        "",
        "| variable | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for variable in config.VARIABLES:
        kind = ", ".join(f"`{choice}`" for choice in variable.choices) or variable.kind
        value = int(variable.default) if isinstance(variable.default, bool) else variable.default
        default = "not set" if value is None else f"`{value}`"
        about = variable.about
        if variable.aliases:
            about += f" Otherwise {' or '.join(f'`{name}`' for name in variable.aliases)}."
        lines.append(f"| `{variable.name}` | {kind} | {default} | {about} |")
    return "\n".join([*lines, "", *other_variables()])


def errors_page() -> str:
    """The errors."""
    return MADE.format(source="distdbg/errors.py") + error_sections()


def plans_page() -> str:
    """What three ranks do for some sizes, drawn from the plans that they would carry out."""
    return MADE.format(source="distdbg/runtime/plan") + drawn_plans()


def _flag_rows(flags: Iterable[CommandFlag]) -> list[str]:
    lines = ["| flag | default | variables | meaning |", "|---|---|---|---|"]
    for flag in flags:
        spellings = ", ".join(
            f"`{name}`" for name in (flag.name, flag.opposite, flag.short) if name
        )
        value = ", ".join(f"`{c}`" for c in flag.choices) or (flag.metavar and f"`{flag.metavar}`")
        default = "not set" if flag.default is None else f"`{flag.default}`"
        if flag.kind == "switch":
            default = "on" if flag.default else "off"
        elif flag.default in ("", ()):
            default = "empty"
        variables = ", ".join(f"`{name}`" for name in flag.variables) or "none"
        meaning = f"{value}: {flag.about}" if value else flag.about
        lines.append(
            f"| {spellings} | {default} | {variables} | {meaning.replace('|', '&#124;')} |"
        )
    return [*lines, ""]


def launch_flags_page() -> str:
    """One table per section of the launcher's flags."""
    lines = [
        MADE.format(source="distdbg/launch/flag_table.py") + "# Flags of distdbg run",
        "",
        "    distdbg run [flags] SCRIPT [ARGUMENTS]",
        "",
        "All flags of torchrun are here, with its names, short forms, defaults and variables; a",
        "flag may be written with `_` for `-`. What is not on the command line is taken from the",
        "first of the variables that is set and not empty. A bad value raises `UsageError`, a",
        "variable that is no number where one is wanted `ConfigError`; both end with exit code 2",
        "before anything is started. The argument `${local_rank}` of the script becomes the number.",
        "",
    ]
    for section in SECTIONS:
        title = section.title[0].upper() + section.title[1:]
        lines += [f"## {title}", "", *_flag_rows(section.flags)]
    lines += [
        "## The older form",
        "",
        "    python -m distdbg.launch [flags] SCRIPT [ARGUMENTS]",
        "",
        "As torch.distributed.launch: each script gets `--local-rank=N` before its own arguments,",
        "unless this flag is given. `--no-python` needs it.",
        "",
        *_flag_rows([USE_ENV]),
        "## What a rank finds",
        "",
        "| variable | its value |",
        "|---|---|",
        *(f"| {names} | {value} |" for names, value in RANK_VARIABLES),
        "",
        "## Other variables that are read",
        "",
        "| variable | meaning |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in OTHER_VARIABLES),
        "",
        "## Not as torchrun",
        "",
        "- `--start-method` is taken and means nothing: a rank is always a process of its own.",
        "- `--logs-specs` knows only `default`, and `--nproc-per-node` no `xpu`.",
        "- `--rdzv-backend=static` takes no range of hosts, and `--standalone` is one host, even where",
        "  `--nnodes` allows more.",
        "- A launcher that is lost before its ranks have ended well has all ranks begin again, also those of",
        "  launchers whose ranks had ended well.",
        "- A launcher that waits for others says so after three seconds, and until when it waits.",
        "- `--redirects` and `--tee` take local ranks of more than one digit.",
        "- `--numa-binding` needs no GPU and no numactl.",
        "- A rank's stderr is a pipe that the launcher reads, so that no line is torn;",
        "  `sys.stderr.isatty()` is false in a rank.",
        "- The exit code is that of the rank that failed first, 128 + n for signal n; torchrun's is 1.",
        "- `--master-port` is for the ranks. With several hosts and `static` the launchers meet there",
        "  first. Rank 0 of torch serves its store there (`TORCHELASTIC_USE_AGENT_STORE` is `False`);",
        "  until it does, the launcher holds the port against others.",
        "- Of the script's arguments only `${local_rank}` is replaced, neither `$local_rank` nor `$$`.",
        "- An empty variable counts as one that is not set.",
    ]
    return "\n".join(lines).rstrip() + "\n"


def commands_page() -> str:
    """The commands, and what an exit code says."""
    lines = [
        MADE.format(source="distdbg/cli/commands.py") + "# Commands",
        "",
        "`distdbg COMMAND --help` lists the flags of a command; `python -m distdbg` is the same as",
        "`distdbg`. What a command finds goes to stdout, all else to stderr.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for command in COMMANDS:
        line = " ".join(filter(None, ("distdbg", command.name, command.arguments)))
        lines.append(f"| `{line}` | {command.about} |")
    codes: dict[int, list[str]] = {}
    for cls in error_classes():
        codes.setdefault(cls.exit_code, []).append(f"`{cls.__name__}`")
    lines += [
        "",
        "## Exit codes",
        "",
        "`distdbg run` ends as the rank that failed first: with its exit code, or 128 and the",
        "number of the signal. Otherwise:",
        "",
        "| code | when |",
        "|---|---|",
        "| 0 | all went well; `distdbg analyze`: nothing was found |",
        "| 1 | `distdbg analyze`: something was found; `distdbg stacks`: not all could be taken; "
        "`distdbg exec`: a rank had no value to tell; `distdbg break`: a rank did not go on |",
        *(f"| {code} | {', '.join(names)} |" for code, names in sorted(codes.items())),
        "| 130 | interrupted by Ctrl-C |",
    ]
    return "\n".join(lines) + "\n"


#: What each type of distdbg.render.schema is in JSON.
JSON_TYPES = {
    "text": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "time": "string: UTC, `2026-11-22T04:10:00.125000Z`",
    "ranks": "array of integers: global ranks, ascending",
    "texts": "array of strings",
    "numbers": "object of numbers",
}


def analysis_json_page() -> str:
    """The objects of the JSON of `distdbg analyze`."""
    lines = [
        MADE.format(source="distdbg/render/schema.py") + "# The JSON of distdbg analyze",
        "",
        "    distdbg analyze --json [PATH...]",
        "",
        "prints one document: an object `session`, the last start of the job. Where PATHs hold several",
        f'jobs it is `{{"schema": {SCHEMA}, "sessions": [...]}}` with one `session` for each. The agent',
        "writes the same object into the run folder as `verdict.json`.",
        "",
        f"`schema` is {SCHEMA}. It changes when a key is renamed, removed or means something else; new keys",
        "may come without that, so pass over what you do not know. Every key is always there; what",
        "may be null says so. All text may come from the program: escape it before you show it.",
        "",
    ]
    for name, fields in OBJECTS.items():
        lines += [f"## {name}", "", "| key | value | meaning |", "|---|---|---|"]
        for field in fields:
            kind = JSON_TYPES.get(field.type) or _json_link(field.type)
            null = ", or null" if field.is_optional else ""
            lines.append(f"| `{field.name}` | {kind}{null} | {field.about or 'its number'} |")
        lines.append("")
    lines += [
        "## Example",
        "",
        "What a script asks most often, with [jq](https://jqlang.org):",
        "",
        "```sh",
        "distdbg analyze --json run | jq -r '.verdict.what, .findings[.verdict.root].ranks'",
        "```",
        "",
        f"There are {len(FINDING_KINDS)} kinds of findings. The exit code is 1 when",
        "`verdict.has_faults`, else 0.",
    ]
    return "\n".join(lines) + "\n"


def _json_link(type_: str) -> str:
    name = type_.removeprefix("list of ")
    return f"array of [{name}](#{name})" if name != type_ else f"[{name}](#{name})"


def record_layout_page() -> str:
    """The layout of a record."""
    return MADE.format(source="distdbg/record/format.py") + layout_page()


def control_page_layout_page() -> str:
    """The layout of the control page."""
    return MADE.format(source="distdbg/control/layout.py") + control_layout_page()


def breakpoints_page() -> str:
    """What a rule of a breakpoint may ask for."""
    lines = [
        MADE.format(source="distdbg/control/break_fields.py") + "# Rules of breakpoints",
        "",
        "    rank=3,kind=all_reduce,group=dp,seq>=42;on=nan",
        "",
        "`DISTDBG_BREAK`, `distdbg break` and the dashboard take the same rules. A rule is a list of",
        "conditions with `,` between them, which all have to hold; `;` parts rules. `|` is *or*: one of the",
        "values has to fit, or with `!=` none of them may. A rank stops before the op is sent.",
        "How to use them: [stop a rank in a debugger](../how-to/stop-a-rank.md).",
        "",
        "## Which ops",
        "",
        "| field | operators | meaning | example |",
        "|---|---|---|---|",
    ]
    for name, field in FIELDS.items():
        operators = " ".join(f"`{each}`" for each in OPERATORS[field.kind])
        choices = f" One of {', '.join(f'`{word}`' for word in field.choices)}."
        about = field.about + (choices if field.choices else "")
        example = field.example.replace("|", "\\|")
        lines.append(f"| `{name}` | {operators} | {about} | `{example}` |")
    lines += [
        "",
        "What an op does not have fits nothing: `peer` and `tag` are of a send or recv. `*` stands for any",
        "text in `name`, `group`, `dtype` and `comm`. Ranks may be ranges.",
        "",
        "## At what",
        "",
        "| `on=` | a rank stops at |",
        "|---|---|",
        *(f"| `{on}` | {about} |" for on, about in ABOUT_ON.items()),
        "",
        "Several are joined by `|`. At an error the debugger has it before the program does; an op whose",
        "job is aborted stops nowhere.",
        "",
        "## How often",
        "",
        "| | |",
        "|---|---|",
        "| `skip=N` | passes over the first N times that the rule fits |",
        "| `hits=N` | stops at most N times; without it, every time |",
        "",
        "Each rank counts for itself. A rule keeps its counts while others are armed and cleared.",
        f"All rules that are armed together take at most {MAX_BREAK_NBYTES} bytes.",
    ]
    return "\n".join(lines) + "\n"


def top_keys_page() -> str:
    """The keys and commands of the dashboard."""
    lines = [
        MADE.format(source="distdbg/tui") + "# Keys of distdbg top",
        "",
        "[Watch a job](../how-to/watch-a-job.md) says what to do with them. `?` shows those that are good",
        "where you are. With `--readonly`, and in a replay, there is none that changes the job.",
        "",
        *_key_table("Everywhere", TopApp.BINDINGS),
        *_key_table("In a table", [*CursorView.BINDINGS, *RowTable.BINDINGS]),
        *_key_table("In a text", [*CursorView.BINDINGS, *Sheet.BINDINGS]),
        *_key_table("While a line is typed", Line.BINDINGS),
    ]
    for view in VIEWS:
        bindings = [*view.BINDINGS, *(TimeLanes.BINDINGS if view is TimelineView else [])]
        if bindings:
            lines += _key_table(f"In {view.title}", bindings)
    lines += [
        "## Commands",
        "",
        "Behind `:`, where tab completes and the arrows bring back what was typed; and in the palette,",
        "ctrl+p.",
        "",
        "| command | what it does | changes the job |",
        "|---|---|---|",
        *(
            f"| `{f'{command.name} {command.argument}'.strip()}` | {command.about} "
            f"| {'yes' if command.changes else 'no'} |"
            for command in TOP_COMMANDS
        ),
    ]
    return "\n".join(lines) + "\n"


def _key_table(title: str, bindings: Iterable[BindingType]) -> list[str]:
    rows = [
        f"| {' '.join(f'`{name}`' for name in key.name.split('  '))} | {key.about} |"
        for key in keys_of(bindings)
    ]
    return [f"## {title}", "", "| key | what it does |", "|---|---|", *rows, ""]


def metrics_page() -> str:
    """The metrics."""
    return MADE.format(source="distdbg/export/metrics/families.py") + metrics_tables()


def tables_page() -> str:
    """The columns of an exported table."""
    return MADE.format(source="distdbg/export/tables/columns.py") + table_columns()


def functional_page() -> str:
    """The functional collectives."""
    return MADE.format(source="distdbg/functional") + functional_ops()


def otel_page() -> str:
    """Spans, log records and metrics over OTLP."""
    return (
        MADE.format(source="distdbg/export/otel/attributes.py and docs/otel_page.py")
        + otel_tables()
    )


def hints_page() -> str:
    """What a hint is about, where the source of the program can be read."""
    return (
        MADE.format(source="distdbg/render/hints/")
        + "# Hints\n\n"
        + "A report ends with one hint. The records give the first; where the source of the program can\n"
        + "be read, and has not been changed since the run began, a hint with a line takes its place. The\n"
        + "surest are looked for first, and the first that fits is shown. A hint says where to look; what\n"
        + "is proven stands above it.\n\n"
        + "\n".join(source_hints()).rstrip()
        + "\n"
    )


def stub() -> str:
    """The names of distdbg as type checkers read them, who do not see what is loaded lazily."""
    homes = dict.fromkeys(distdbg._MODULES, "distdbg") | distdbg._HOME_OF
    imports = sorted((home, name) for name, home in homes.items())
    lines = [
        '"""The names of distdbg for type checkers. Made by docs/generate.py from __init__.py."""\n',
        *(f"from {home} import {name} as {name}" for home, name in imports),
        "\n__version__: str\n__all__: list[str]",
    ]
    return "\n".join(lines) + "\n"


PAGES = {
    "../../distdbg/__init__.pyi": stub,
    "analysis-json.md": analysis_json_page,
    "functional.md": functional_page,
    "breakpoints.md": breakpoints_page,
    "commands.md": commands_page,
    "env.md": env_page,
    "errors.md": errors_page,
    "hints.md": hints_page,
    "launch-flags.md": launch_flags_page,
    "metrics.md": metrics_page,
    "otel.md": otel_page,
    "parity.md": parity_page,
    "plans.md": plans_page,
    "tables.md": tables_page,
    "top-keys.md": top_keys_page,
    "record-layout.md": record_layout_page,
    "control-page-layout.md": control_page_layout_page,
}


def stale() -> list[str]:
    """The pages on disk that differ from what would be written."""
    return [
        name
        for name, make in PAGES.items()
        if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != make()
    ]


def main(argv: list[str]) -> int:
    old = stale()
    if "--check" in argv:
        for name in old:
            print(f"docs/reference/{name} is not current; run `make docs`", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (REFERENCE / name).write_text(PAGES[name]())
        print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
