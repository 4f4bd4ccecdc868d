"""Two machines as network namespaces: ranks find each other by an address, listen there and nowhere else, and one that is cut off is told of by both sides."""
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from rank_jobs import REDLINE, apart, bit_equal, free_port, last_step, launch, listening_in, make_home, run, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/ranks"))
from limited_network import LimitedLinks  # noqa: E402


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("ranks"))


@pytest.fixture()
def machines():
    try:
        network = LimitedLinks(2)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to make network namespaces (root, ip)")
    with network:
        yield network


def two_machines(home, machines, *words):
    port = free_port()
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return [subprocess.Popen([*machines.words(r), REDLINE, "train", *words], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**clean, "RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": machines.address(0),
                                  "MASTER_PORT": str(port)}) for r in range(2)]


def test_two_machines_train_as_one_process(home, tmp_path, machines):
    run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/one")
    ranks = two_machines(home, machines, "vae.yaml", f"--run-dir={tmp_path}/two")
    texts = [p.communicate(timeout=120)[1] for p in ranks]
    assert [p.returncode for p in ranks] == [0, 0], texts
    assert apart(tmp_path / "one", tmp_path / "two", ["loss", "val_loss"]) < 1e-4


def test_a_machine_that_is_cut_off_is_told_of_by_both_sides(home, tmp_path, machines):
    words = ["vae.yaml", "trainer.max_steps=80", "exp_manager.checkpoint_callback_params.every_n_train_steps=7", "trainer.strategy.peer_timeout=3s"]
    launch(home, 2, *words, f"--run-dir={tmp_path}/whole")
    machines.limit(2e6)  # slow enough to be in the middle
    ranks = two_machines(home, machines, *words, f"--run-dir={tmp_path}/run")
    try:
        wait_for(lambda: last_step(tmp_path / "run") > 10, 120)
        addresses = [a for r in range(2) for a in listening_in(machines.words(r), ranks[r].pid)]
        assert addresses and all(a.startswith(("10.88.0.", "127.0.0.1")) for a in addresses), addresses
        machines.cut(1)
        began = time.monotonic()
        texts = [p.communicate(timeout=60)[1] for p in ranks]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.communicate()
    assert [p.returncode for p in ranks] == [8, 8], texts
    assert time.monotonic() - began < 3 + 15
    assert "Rank 1" in texts[0] and re.search(r"last seen in \w+ of step \d+", texts[0]), texts[0]
    assert "Rank 0" in texts[1] or "store" in texts[1], texts[1]
    assert last_step(tmp_path / "run") < 80
    launch(home, 2, *words, f"--run-dir={tmp_path}/run")
    assert bit_equal(tmp_path / "run", tmp_path / "whole"), "as if nothing had been"
