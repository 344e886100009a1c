"""`make demo`: a job that works, one with a wrong rank, and one that hangs, in less than a minute.

On a terminal it goes on with Enter and ends with q. It exits 0 only if all ended as they should: the first
with a falling loss and equal weights, the second with the same error on every rank, and the third with a
report while it hung.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hanging_job import HangingJob, distdbg, environment

FIT = Path(__file__).with_name("fit.py")
RANKS = 4
WRONG_RANK = 2
TIME_LIMIT_S = 120.0
#: A terminal of 80 columns is enough: what is shown is indented.
INDENT = "  "
FRAME = "78x14"


class Quit(Exception):
    """Who looks has seen enough."""


class Failed(Exception):
    """A job did not end as it should."""


def is_step_by_step() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


def pause() -> None:
    """Wait for Enter where somebody can type it."""
    if not is_step_by_step():
        return
    try:
        answer = input("\n[Enter: next, q: quit] ")
    except EOFError:
        answer = "q"
    if answer.strip().lower().startswith("q"):
        raise Quit


def show(text: str) -> None:
    lines = (f"{INDENT}{line}".rstrip() + "\n" for line in text.splitlines())
    print("".join(lines), end="", flush=True)


def run(*options: str) -> tuple[int, str]:
    """Run the fit and show its output; return its exit code and what it printed."""
    print(f"$ distdbg run --nproc-per-node {RANKS} examples/fit.py {' '.join(options)}".rstrip())
    sys.stdout.flush()
    printed = []
    launcher = [sys.executable, "-m", "distdbg", "run", "--nproc-per-node", str(RANKS)]
    with subprocess.Popen(
        [*launcher, str(FIT), *options],
        env={"OMP_NUM_THREADS": "1", **environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            show(line)
            printed.append(line)
        code = job.wait(TIME_LIMIT_S)
    if code:
        show(f"exit code {code}")
    return code, "".join(printed)


def losses(printed: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss ([\d.]+)", printed)]


# --------------------------------------------------------------------------------------- the parts


def show_fit() -> None:
    print(f"1. {RANKS} ranks fit a network together; a GradientReducer averages gradients\n")
    code, printed = run()
    course = losses(printed)
    if code or len(course) < 2 or course[-1] > course[0] / 4 or "bitwise equal" not in printed:
        raise Failed(f"the fit did not work\n{printed}")


def show_mismatch() -> None:
    print(f"\n2. The same job; rank {WRONG_RANK} has a hidden layer that is one unit wider.")
    print("   Elsewhere such a job hangs, crashes or goes on with wrong numbers.\n")
    code, printed = run("--wrong-rank", str(WRONG_RANK))
    if code == 0 or not re.search(rf"^MISMATCH: .* on rank {WRONG_RANK}", printed, re.MULTILINE):
        raise Failed(f"the wrong rank was not reported\n{printed}")
    print(f"\nAll ranks know that rank {WRONG_RANK} differs, and in what; the job ended at once.")


def show_hang() -> None:
    print("\n3. A job that hangs: rank 2 waits for a message, the others for rank 2 in all_reduce.")
    print("   Without --on-deadlock report the launcher would end it now, with the same report.\n")
    with HangingJob() as job:
        print(f"$ {job.command_line}", flush=True)
        show(job.report())
        pause()
        page = job.folder / "hang.html"
        print("\n4. It still hangs. What happened, and where, from its records:\n")
        print(f"$ distdbg analyze --html {page}", flush=True)
        text = distdbg("analyze", "--html", str(page), job.name, fails=True)
        if "hang.py" not in text or not page.is_file():
            raise Failed(f"the hang was not found\n{text}")
        lines = text.splitlines()
        end = next((at for at, line in enumerate(lines) if line.startswith("Where they")), 20)
        show("\n".join(lines[:end]).rstrip())
        print(
            f"{INDENT}... {len(lines) - end} more lines: where each rank is, and what it did last"
        )
        pause()
        print("\n5. One frame of the dashboard:\n")
        print("$ distdbg top --once", flush=True)
        frame = distdbg("top", job.name, "--once", "--size", FRAME)
        if "ranks 0,2 are deadlocked" not in frame:
            raise Failed(f"the dashboard does not show the deadlock\n{frame}")
        show(frame)
        job.stop()
    print_next(job, page)


def print_next(job: HangingJob, page: Path) -> None:
    program = Path(sys.executable).with_name("distdbg")
    shown = os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)
    print(
        f"\nThe job has ended. Its records and the page are in {job.folder}:"
        f"\n  {page}\n"
        "\nNext:\n"
        f"  {shown} top                 the same run as a dashboard, also now that it is over\n"
        f"  {shown} analyze             what went wrong with the latest run\n"
        f"  {shown} run --nproc-per-node 4 YOUR_PROGRAM.py\n"
        "  docs/tutorials/first-job.md             ten minutes; README.md has the rest\n"
        f"  rm -r {job.folder}     removes what this left"
    )


def main() -> int:
    try:
        show_fit()
        pause()
        show_mismatch()
        pause()
        show_hang()
    except Quit:
        return 0
    except KeyboardInterrupt:
        return 130
    except Failed as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
