"""The HTML report of a run of 100,000 steps: its size, how long it takes to make, and until headless Chromium has drawn it."""
import shutil
import subprocess
import sys
import time

from frame import ROOT, Bar, Workload


def workload(env):
    sys.path.insert(0, str(ROOT / "tests/python"))
    import chromium
    import run_records

    folder = env.work / "report_page"

    def draw():
        shutil.rmtree(folder, ignore_errors=True)
        step = {"wait": 1.0, "copy": 0.1, "forward": 20.0, "backward": 40.0, "optimiser": 3.0, "other": 0.3}
        run = run_records.make_run(folder / "run", step, steps=100_000)
        page = folder / "report.html"
        begin = time.monotonic()
        subprocess.run([str(env.redline), "report", str(run), "--html", str(page)], check=True, capture_output=True)
        made = time.monotonic() - begin
        with chromium.Browser() as browser:
            seconds = browser.open(page)
            assert browser.complaints() == []
            lines = browser.evaluate("[...document.querySelectorAll('polyline')].filter(line => line.getBBox().width > 50).length")
        assert lines >= 6
        return {"page_bytes": page.stat().st_size, "draw_seconds": seconds, "make_seconds": made}

    return Workload(
        name="report_page",
        sentence="The HTML report of a run of 100,000 steps in headless Chromium",
        variants={"redline": draw},
        bars=[Bar("page_bytes", "redline", "redline", smaller_is_better=True, at_most=2 * 2**20, sentence="bytes"),
              Bar("draw_seconds", "redline", "redline", smaller_is_better=True, at_most=1.0, sentence="from opening to the second frame after loading")],
    )
