"""Makes a picture of the page of a run: the top of it, as a reader sees it first.

python docs/screenshot.py                                of the job of docs/how-to/find-out-why-it-hung.md
python docs/screenshot.py RUN docs/how-to/analyze.png    of any run
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.render.html import to_html

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "chromium"))
from browser import Browser, find_chromium

HERE = Path(__file__).parent
PAGE = HERE / "how-to" / "find-out-why-it-hung.md"
PICTURE = HERE / "how-to" / "analyze.png"


def make_run(folder: Path) -> str:
    """Run the program that the page shows."""
    found = re.search(
        r"^```python\n# (halo\.py)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    (folder / found[1]).write_text(f"# {found[1]}\n{found[2]}")
    environ = {**os.environ, "DISTDBG_RUN_DIR": str(folder / "run")}
    environ.pop("DISTDBG_AGENT", None)
    job = subprocess.run(
        [sys.executable, found[1]], cwd=folder, env=environ, check=False, capture_output=True
    )
    assert job.returncode, "the job did not hang"
    return environ["DISTDBG_RUN_DIR"]


def main(run: str | None = None, picture: str = str(PICTURE)) -> None:
    if run is None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            draw(make_run(Path(folder)), picture)
    else:
        draw(run, picture)


def draw(run: str, picture: str) -> None:
    program = find_chromium()
    if program is None:
        sys.exit("this needs Chromium")
    session = load_run(run)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        page.write_text(to_html(session, diagnose(session)), encoding="utf-8")
        browser = Browser(program, Path(folder) / "profile")
        try:
            browser.open(page, width=1180, height=900)
            browser.until("document.documentElement.dataset.ready")
            # What a small picture has no room for.
            browser.ask("document.getElementById('where').hidden = true")
            browser.frame()
            browser.screenshot(Path(picture), height=1095)
        finally:
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
