"""Makes a picture of the page of a run: the top of it, as a reader sees it first.

python docs/screenshot.py RUN docs/how-to/analyze.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.render.html import to_html

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "chromium"))
from browser import Browser, find_chromium


def main(run: str, picture: str) -> None:
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
