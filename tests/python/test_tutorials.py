"""The tutorials' commands, in order, as a reader types them. One in `make test`; all of them with REDLINE_SLOW=1."""
import os
import pathlib
import re
import shlex
import subprocess

import pandas
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = os.environ.get("REDLINE_SLOW") == "1"
TUTORIALS = ["sequences"] + (["speech", "pictures", "birds_eye"] if SLOW else [])


def blocks(name):
    return re.findall(r"```(sh|yaml)\n(.*?)```", (ROOT / f"docs/tutorial_{name}.md").read_text(), re.S)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_does_what_it_says(tmp_path, name):
    commands = 0
    for kind, text in blocks(name):
        if kind == "yaml":
            file = re.match(r"# (\S+)\n", text)[1]
            (tmp_path / file).write_text(text.replace("RECIPES", str(ROOT / "recipes")))
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "redline", line
            done = subprocess.run([REDLINE, *words[1:]], capture_output=True, text=True, cwd=tmp_path, timeout=300, stdin=subprocess.DEVNULL)
            assert done.returncode == 0, (line, done.stdout[-1500:], done.stderr[-1500:])
            commands += 1
    assert commands >= 8 and (tmp_path / "model.safetensors").exists() and (tmp_path / "first.html").stat().st_size > 50_000
    for table in tmp_path.glob("*.parquet"):
        assert len(pandas.read_parquet(table)["name"]) > 0


def test_every_tutorial_goes_all_the_way():
    for name in ("speech", "sequences", "pictures", "birds_eye"):
        text = " ".join(text for kind, text in blocks(name) if kind == "sh")
        for command in ("data synth", "train", "tune", "report", "eval", "predict", "convert"):
            assert f"redline {command}" in text, (name, command)
