"""Checks the dashboards by the types that Grafana publishes for its own, options of panels included.

python -m dashboards.check_schema [FOLDER]

Needs Node.js and npm. `@grafana/schema` and the compiler of TypeScript are installed into FOLDER, or a
folder that is removed afterwards. Exits with 1 and the compiler's words where a dashboard does not fit.

JSON knows no enums, so the types are loosened to what JSON can say of them: an enum of texts is its texts.
All else is strict: a key that the types do not know is an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from dashboards.generate.__main__ import FOLDER

PACKAGES: Final = ("@grafana/schema@13.2.3", "typescript@5.9.3")
LONGEST_S: Final = 60
#: Types of panels, where their options are, and whether their series have options too.
PANELS: Final = {
    "timeseries": ("timeseries", True),
    "stat": ("stat", False),
    "table": ("table", True),
    "heatmap": ("heatmap", True),
    "bargauge": ("bargauge", False),
    "text": ("text", False),
    "state-timeline": ("statetimeline", True),
}
QUERY_OF_MARKS: Final = ("expr", "step", "titleFormat")
TYPES: Final = "./node_modules/@grafana/schema/dist/types"
LOOSE: Final = """\
type Loose<T> = T extends string ? (string extends T ? string : `${T}`)
  : T extends number | boolean | null | undefined ? T
  : T extends object ? { [K in keyof T]: Loose<T[K]> }
  : T;
"""


def source(boards: dict[str, Any]) -> str:
    """A program that compiles if every board has the type of a dashboard."""
    imports = []
    for name, has_fields in PANELS.values():
        what = ["Options"] + ["FieldConfig"] * has_fields
        names = ", ".join(f"{one} as {name}_{one}" for one in what)
        imports.append(
            f'import type {{ {names} }} from "{TYPES}/raw/composable/{name}/panelcfg/x/types.gen";'
        )
    lines = [
        f'import type {{ Dashboard }} from "{TYPES}/raw/dashboard/x/types.gen";',
        *imports,
        LOOSE,
    ]
    for name, board in boards.items():
        lines.append(f"// {name}")
        lines += _checked("Dashboard", _without_marks_of_prometheus(board))
        for panel in board["panels"]:
            options, has_fields = PANELS[panel["type"]]
            lines.append(f"// {name}: {panel['title']}")
            lines += _checked(f"{options}_Options", panel["options"])
            if has_fields:
                fields = panel["fieldConfig"]["defaults"]["custom"]
                lines += _checked(f"Partial<{options}_FieldConfig>", fields)
    return "\n".join(lines) + "\n"


def _checked(name: str, value: object) -> list[str]:
    return [f"({json.dumps(value)}) satisfies Loose<{name}>;"]


def _without_marks_of_prometheus(board: dict[str, Any]) -> dict[str, Any]:
    """Without what belongs to the data source of an annotation, not to the dashboard."""
    marks = [
        {key: value for key, value in mark.items() if key not in QUERY_OF_MARKS}
        for mark in board["annotations"]["list"]
    ]
    return {**board, "annotations": {"list": marks}}


def install(folder: Path) -> None:
    subprocess.run(
        [
            "npm",
            "install",
            "--fetch-retries=0",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(folder),
            *PACKAGES,
        ],
        check=True,
        capture_output=True,
        timeout=LONGEST_S,
    )


def compile_boards(folder: Path, boards: dict[str, Any]) -> str:
    """What the compiler says; nothing where all is well."""
    (folder / "boards.ts").write_text(source(boards), encoding="utf-8")
    compiler = folder / "node_modules" / ".bin" / "tsc"
    done = subprocess.run(
        [compiler, "--noEmit", "--strict", "--skipLibCheck", "boards.ts"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    return done.stdout + done.stderr


def main(arguments: list[str]) -> int:
    boards = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
    with tempfile.TemporaryDirectory() as own:
        folder = Path(arguments[0]) if arguments else Path(own)
        if not (folder / "node_modules" / "@grafana" / "schema").is_dir():
            install(folder)
        said = compile_boards(folder, boards)
    print(said or f"{len(boards)} dashboards fit {PACKAGES[0]}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
