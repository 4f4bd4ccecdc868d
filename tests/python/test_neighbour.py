"""A fair neighbour, and a job that is the same job: waits are bounded before libgomp is loaded unless the user says otherwise, and what a
precision resolves to follows the processor's units, whatever else runs and whatever was measured."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = str(ROOT / "recipes/sequence_vae.yaml")
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def environment(**values):
    return {name: value for name, value in os.environ.items() if name not in WAITING} | {name: str(value) for name, value in values.items()}


def redline(*words, **values):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, env=environment(**values), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done


def spins_seen_by_libgomp(command=(REDLINE,), **values):
    """What the library itself read: it prints its settings when it is loaded."""
    said = redline(*command, "--version", OMP_DISPLAY_ENV="verbose", **values).stderr
    return [int(count) for count in re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said)]


def test_waits_are_bounded_by_default():
    assert spins_seen_by_libgomp() == [1500], "once: no library's constructor runs twice"


@pytest.mark.parametrize("given, seen", [({"GOMP_SPINCOUNT": "7"}, 7), ({"GOMP_SPINCOUNT": "300000"}, 300000), ({"OMP_WAIT_POLICY": "passive"}, 0),
                                         ({"OMP_WAIT_POLICY": "active"}, 30000000000)])
def test_what_the_user_gives_is_obeyed(given, seen):
    assert spins_seen_by_libgomp(**given) == [seen]


def test_a_variable_that_only_begins_alike_changes_nothing():
    assert spins_seen_by_libgomp(OMP_WAIT_POLICY_NOTE="active", XGOMP_SPINCOUNT="5") == [1500]


def test_the_second_start_has_the_same_words_name_and_environment(tmp_path):
    """By a relative path, with odd arguments; the process keeps its name."""
    (tmp_path / "rl").symlink_to(REDLINE)
    done = subprocess.run(["./rl", "frob nicate", "", "*"], cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2 and "frob nicate" in done.stderr
    script = ("import os, subprocess, sys, time\n"
              "p = subprocess.Popen([sys.argv[1], 'machine', '--quick', '--path', sys.argv[2]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
              "p.stderr.readline()\n"
              "print(open(f'/proc/{p.pid}/comm').read().strip(), 'GOMP_SPINCOUNT=1500' in open(f'/proc/{p.pid}/environ').read())\n"
              "p.kill(); p.wait()\n")
    answer = subprocess.run([sys.executable, "-c", script, REDLINE, str(tmp_path)], capture_output=True, text=True, env=environment(), timeout=60)
    assert answer.stdout.split() == [pathlib.Path(REDLINE).name[:15], "True"], answer.stderr


def test_started_through_the_loader_it_is_left_as_it_is():
    """There the kernel's path is the loader's: starting that again would run our first argument."""
    loader = re.search(r"interpreter: ([^\]]+)", subprocess.run(["readelf", "-l", REDLINE], capture_output=True, text=True).stdout).group(1)
    assert spins_seen_by_libgomp(command=(loader, REDLINE)) == [300000]


def resolved_precision(**values):
    return re.search(r"^ *precision: *(\S+)", redline(REDLINE, "-q", "train", RECIPE, "--precision", "16-mixed", "--print-config", **values).stdout, re.M).group(1)


def test_precision_follows_the_units_beside_a_busy_neighbour(tmp_path):
    facts = json.loads(redline(REDLINE, "machine", "--quick", "--json").stdout)
    bf16 = facts["avx512_bf16"] or facts["amx_bf16"]
    expected = "16-mixed" if facts["avx512_fp16"] else "bf16-mixed" if bf16 else "32-true"
    assert any(f"16-mixed runs as {expected} here" in sentence for sentence in facts["words"])
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        seen = [resolved_precision(XDG_CACHE_HOME=tmp_path) for _ in range(3)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert seen == [expected] * 3
    assert list(tmp_path.iterdir()) == [], "reading a job measures nothing and writes nothing"


def test_the_profile_is_measured_once_and_made_anew_when_asked(tmp_path):
    def machine(*words):
        return json.loads(redline(REDLINE, "machine", "--json", *words, XDG_CACHE_HOME=tmp_path).stdout)

    first = machine("--measure")
    assert first["rates_measured_at"] and first["gemm_fp32_gflops"] > 0
    if first["rates_problem"]:  # others were busy: then nothing may be kept
        assert not first["rates_kept"] and list(tmp_path.rglob("*.json")) == []
        return
    [kept] = tmp_path.rglob("*.json")
    assert first["rates_kept"]
    again = machine("--quick")
    assert again["rates_measured_at"] == first["rates_measured_at"] and again["gemm_fp32_gflops"] == first["gemm_fp32_gflops"]
    # A profile of a starved probe is not believed, and said to be ignored.
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"rates": json.loads(kept.read_text())["rates"] | {"gemm_fp32_gflops": 0.29}}))
    done = redline(REDLINE, "train", RECIPE, "--precision", "16-mixed", "--print-config", XDG_CACHE_HOME=tmp_path)
    assert str(kept) in done.stderr and "0.29 GFLOP/s" in done.stderr
    assert machine("--quick")["gemm_fp32_gflops"] != 0.29
