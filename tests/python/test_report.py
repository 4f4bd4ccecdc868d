"""redline report and compare: the page in a real browser, the gate's three answers, and records nobody should trust."""
import json
import os
import pathlib
import subprocess

import pytest

import chromium
import run_records

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
STEP = {"wait": 1.0, "copy": 0.1, "forward": 20.0, "backward": 40.0, "optimiser": 3.0, "other": 0.3}


def redline(*words, env=None):
    return subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)


def with_cadences(i):
    return {**STEP, **({"log": 1.0} if i % 10 == 9 else {}), **({"validate": 200.0} if i % 50 == 49 else {})}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make = run_records.make_run
    tuned = make(folder / "tuned", {**STEP, "forward": 12.0, "backward": 25.0}, seed=4)
    (tuned / "tune_card.json").write_text(json.dumps(run_records.make_card()))
    return {
        "base": make(folder / "base", with_cadences, seed=1),
        "same": make(folder / "same", with_cadences, seed=2),
        "slower": make(folder / "slower", lambda i: {**with_cadences(i), "backward": 52.0}, seed=3),
        "noisy": make(folder / "noisy", {**STEP, "forward": 19.0}, steps=24, noise=0.5, seed=5),
        "tuned": tuned,
        "long": make(folder / "long", STEP, steps=100_000, seed=6),
    }


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as browser:
        yield browser


CHECK = """({
  lines: [...document.querySelectorAll('polyline')].filter(line => line.getBBox().width > 50).length,
  boxes: [...document.querySelectorAll('.track i')].filter(box => box.getBoundingClientRect().width > 1).length,
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  background: getComputedStyle(document.body).backgroundColor,
  small: [...document.querySelectorAll('.bar span, td, p, li')].filter(e => e.textContent && parseFloat(getComputedStyle(e).fontSize) < 11).length,
  title: document.title,
})"""


# What a reader could not see: elements wider than the page, text that its box cuts, letters outside their drawing.
OVERFLOW = """(() => {
  const found = [], page = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > page + 1) found.push('wide page ' + document.documentElement.scrollWidth);
  const scrolls = e => { for (; e; e = e.parentElement) { const o = getComputedStyle(e).overflowX; if (o === 'auto' || o === 'scroll') return true } return false };
  for (const e of document.querySelectorAll('main *')) {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || scrolls(e)) continue;
    if (box.right > page + 1 || box.left < -1) found.push('wide ' + e.tagName + '.' + (e.className.baseVal ?? e.className) + ' ' + Math.round(box.right));
    const hides = getComputedStyle(e).overflowX === 'hidden' || getComputedStyle(e).overflowY === 'hidden';
    if (hides && e.textContent.trim() && !(e instanceof SVGElement) && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)) found.push('cut ' + e.tagName + ' ' + e.textContent.slice(0, 40));
  }
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 2 || box.top < frame.top - 1) found.push('letters ' + text.textContent + ' in ' + svg.getAttribute('aria-label'));
    }
  }
  return found;
})()"""


@pytest.mark.parametrize("names", [["base"], ["tuned"], ["base", "tuned"], ["base", "slower", "noisy"]], ids="+".join)
@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_at_any_width(runs, browser, tmp_path, names, width, dark):
    page = tmp_path / "report.html"
    assert redline("report", *(runs[name] for name in names), "--html", page).returncode == 0
    browser.open(page, width=width, height=900, dark=dark, phone=width == 390)
    for axis in ("step", "samples", "time"):
        browser.evaluate(f"document.getElementById('axis-{axis}').click()")
        shown = browser.evaluate("[...document.querySelectorAll('.axes > .grid2')].filter(e => e.getBoundingClientRect().height > 0).map(e => e.className)")
        assert shown == [f"grid2 by-{axis}"], "one click changes the axis of all curves"
        assert browser.evaluate(OVERFLOW) == []
    for details in ("true", "false"):
        browser.evaluate(f"document.querySelectorAll('details').forEach(e => e.open = {details})")
        assert browser.evaluate(OVERFLOW) == []
    assert browser.evaluate("document.querySelectorAll('.tile').length") >= 6 * len(names)
    assert browser.evaluate("document.querySelectorAll('svg rect.h title').length") > 100, "pointing at a column shows its values"
    cards = browser.evaluate("[...document.querySelectorAll('td')].filter(e => getComputedStyle(e).display === 'block').length")
    assert (cards > 0) == (width == 390)


def test_the_overflow_check_sees_what_it_should(runs, browser, tmp_path):
    page = tmp_path / "report.html"
    assert redline("report", runs["base"], "--html", page).returncode == 0
    planted = "<p style='white-space:nowrap;display:inline-block'>" + "wide " * 400 + "</p><div style='overflow:hidden;width:4em;height:1em;white-space:nowrap'>" + "cut " * 9 + "</div>"
    page.write_text(page.read_text().replace("<main>", "<main>" + planted))
    browser.open(page)
    found = browser.evaluate(OVERFLOW)
    assert any(line.startswith("wide P.") for line in found) and any(line.startswith("wide page") for line in found) and any(line.startswith("cut DIV") for line in found)


@pytest.mark.parametrize("names", [["base"], ["tuned"], ["base", "tuned"]], ids="+".join)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_the_page_in_a_browser(runs, browser, tmp_path, names, dark, phone):
    page = tmp_path / "report.html"
    done = redline("report", *(runs[name] for name in names), "--html", page)
    assert done.returncode == 0, done.stderr
    browser.open(page, width=390 if phone else 1280, height=844 if phone else 900, dark=dark, phone=phone)
    seen = browser.evaluate(CHECK)
    assert browser.complaints() == []
    assert seen["lines"] >= 6 * len(names) and seen["boxes"] >= 10
    assert seen["wide"] <= 0, "the page scrolls sideways"
    assert seen["small"] == 0
    red = int(seen["background"].split("(")[1].split(",")[0])
    assert (red < 60) == dark
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 30_000


def test_nothing_is_loaded_or_run(runs, tmp_path, browser):
    page = tmp_path / "report.html"
    assert redline("report", runs["base"], "--html", page).returncode == 0
    text = page.read_text()
    assert "default-src 'none'" in text and "<script" not in text and "http://" not in text and "https://" not in text
    # A control: the browser does report what the policy refuses.
    page.write_text(text.replace("<main>", "<main><script>document.title = 'run'</script><img src='http://127.0.0.1:9/x.png'>"))
    browser.open(page)
    assert len(browser.complaints()) >= 2 and browser.evaluate("document.title") == "base · redline"


def test_a_long_run_stays_small_and_draws_fast(runs, tmp_path, browser):
    page = tmp_path / "long.html"
    assert redline("report", runs["long"], "--html", page).returncode == 0
    assert page.stat().st_size <= 2 << 20
    browser.open(page)
    assert browser.evaluate(CHECK)["lines"] >= 6
    assert browser.complaints() == []


@pytest.mark.parametrize("after, code, words", [("same", 0, "No regression"), ("slower", 1, "backward"), ("noisy", 2, "Too noisy")])
def test_compare_as_a_gate(runs, after, code, words):
    done = redline("compare", runs["base"], runs[after], "--fail-on", "3%")
    assert done.returncode == code, (done.stdout, done.stderr)
    assert words in done.stdout
    answer = json.loads(redline("--json", "compare", runs["base"], runs[after], "--fail-on", "3%").stdout)
    assert answer["comparison"]["result"] == code
    if code == 1:
        assert answer["comparison"]["moved"][0]["part"] == "backward"


def test_the_limit_decides(runs):
    assert redline("compare", runs["base"], runs["slower"], "--fail-on", "30%").returncode == 0
    assert redline("compare", runs["slower"], runs["base"], "--fail-on", "0.03").returncode == 0
    for bad in ("-1", "3 apples", "100%", ""):
        assert redline("compare", runs["base"], runs["same"], "--fail-on", bad).returncode == 2


@pytest.mark.parametrize("command", ["report", "doctor"])
def test_json_text_and_page_agree(runs, command):
    answer = json.loads(redline("--json", command, runs["base"]).stdout)
    assert answer["schema_version"] == 1
    run = answer["runs"][0]
    assert sum(phase["share"] for phase in run["phases"].values()) == pytest.approx(1, abs=1e-6)
    assert run["phases"]["validate"]["seconds_per_step"] == pytest.approx(0.004, rel=0.3)
    text = redline(command, runs["base"]).stdout
    assert f"{run['samples_per_second']:.2f} samples/s" in text.replace("\n", " ")


def test_the_card_is_in_every_form(runs, tmp_path):
    card = json.loads(redline("--json", "report", runs["tuned"]).stdout)["runs"][0]["tune_card"]
    fields = [entry["field"] for entry in card["ledger"]["entries"]]
    page = tmp_path / "report.html"
    text = redline("report", runs["tuned"], "--html", page).stdout
    for field in fields:
        assert field in text.replace("\n  ", "") and field in page.read_text()
    assert "Certificate" in text and "Certificate" in page.read_text()


@pytest.mark.parametrize("width", [40, 60, 120])
def test_text_fits(runs, width):
    for words in (["report", runs["base"]], ["doctor", runs["base"]], ["report", runs["base"], runs["tuned"]]):
        done = redline(*words, env={"COLUMNS": str(width)})
        assert done.returncode == 0
        too_long = [line for line in done.stdout.splitlines() if len(line) > width and " " in line.strip()]
        assert too_long == []


def says(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_records_that_are_not(runs, tmp_path):
    says(redline("report", tmp_path), 3, str(tmp_path))
    says(redline("report", tmp_path / "missing"), 3, "missing")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/steps.bin").write_bytes(b"")
    assert redline("doctor", tmp_path / "empty").returncode == 3
    newer = run_records.make_run(tmp_path / "newer", STEP, steps=5, version=99)
    for command in (["report", newer], ["doctor", newer], ["compare", runs["base"], newer]):
        says(redline(*command), 3, "99")


def test_no_steps_is_said(tmp_path):
    run = run_records.make_run(tmp_path / "none", STEP, steps=1)
    (run / "steps.bin").write_bytes(run_records.header())
    says(redline("doctor", run), 3, "no finished steps")
    done = redline("report", run)
    assert done.returncode == 0 and "no finished steps" in done.stdout


def test_a_record_cut_off_in_the_middle(tmp_path):
    run = run_records.make_run(tmp_path / "cut", STEP, steps=50)
    data = (run / "steps.bin").read_bytes()
    (run / "steps.bin").write_bytes(data[: 64 + 232 * 30 + 100])
    done = redline("--json", "report", run)
    assert done.returncode == 0
    answer = json.loads(done.stdout)["runs"][0]
    assert answer["steps"] == 27 and any("steps.bin" in warning for warning in answer["warnings"])  # 30 without warm-up


def test_damaged_files_beside_a_record_are_warnings(tmp_path):
    run = run_records.make_run(tmp_path / "beside", STEP, steps=50)
    (run / "tune_card.json").write_text("[]")
    (run / "machine.json").write_text('{"cpu')
    done = redline("--json", "report", run)
    assert done.returncode == 0, done.stderr
    warnings = json.loads(done.stdout)["runs"][0]["warnings"]
    assert any("tune_card.json" in line for line in warnings) and any("machine.json" in line for line in warnings)


def test_runs_that_are_not_comparable(runs, tmp_path):
    says(redline("compare", runs["base"], run_records.make_run(tmp_path / "other", STEP, task="speech_ssl")), 3, "not comparable", "speech_ssl")
    says(redline("compare", runs["base"], run_records.make_run(tmp_path / "batch", STEP, samples=16)), 3, "not comparable", "16")


def test_names_with_markup_and_escapes(tmp_path, browser):
    run = run_records.make_run(tmp_path / "<script>alert(1)<!--\x1b[31m", STEP, steps=30)
    (run / "config.resolved.yaml").write_text("task: '<img src=x onerror=alert(2)>'\n")
    page = tmp_path / "page.html"
    done = redline("report", run, "--html", page)
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
    browser.open(page)
    assert browser.complaints() == [] and browser.evaluate("document.scripts.length + document.images.length") == 0
    assert "\x1b" not in redline("doctor", run).stdout
    assert "\x1b" not in redline("--json", "doctor", run).stdout
