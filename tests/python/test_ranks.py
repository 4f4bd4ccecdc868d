"""Several ranks as processes: started by every launcher, and safe when a rank is lost."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
from kill_ranks import Campaign
from rank_jobs import REDLINE, ROOT, SLOW, apart, bit_equal, children, finish, free_port, last_step, launch, make_home, ranks_by_hand, run, running, start, wait_for, weights


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("ranks"))


def test_devices_start_ranks_by_themselves_and_the_guides_block_is_taken(home, tmp_path):
    (home / "guide.yaml").write_text("base: vae.yaml\ntrainer:\n  devices: 2\n  sync_batchnorm: true\n  strategy:\n"
                                     "    _target_: lightning.pytorch.strategies.DDPStrategy\n    gradient_as_bucket_view: true\n")
    err = run(home, "train", "guide.yaml", f"--run-dir={tmp_path}/two")
    assert "starting 2 ranks" in err and "2 ranks share each batch" in err and "one rank" not in err
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/launched")
    assert bit_equal(tmp_path / "two", tmp_path / "launched")
    err = run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/all", "trainer.devices=-1", "trainer.strategy=ddp", "trainer.max_steps=2")
    assert "one process on the CPU" in err


def test_rounding_on_the_wire_trains_alike(home, tmp_path):
    run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/one")
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/two", "trainer.strategy.compression=bf16")
    assert 1e-9 < apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-2


def test_torchrun_starts_the_program(home, tmp_path):
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/launched")
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    result = subprocess.run([torchrun, "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port()), REDLINE, "train", "vae.yaml",
                             f"--run-dir={tmp_path}/two"], cwd=home, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    assert bit_equal(tmp_path / "two", tmp_path / "launched")


def test_torchrun_restarts_go_on_by_themselves(home, tmp_path):
    """One rank is killed, the others end with a sentence, torchrun starts all again, and the run ends as one that was left alone."""
    words = ["vae.yaml", "trainer.max_steps=60", "exp_manager.checkpoint_callback_params.every_n_train_steps=7"]
    launch(home, 2, *words, f"--run-dir={tmp_path}/whole")
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    process = subprocess.Popen([torchrun, "--no-python", "--nproc-per-node", "2", "--max-restarts", "3", "--monitor-interval", "0.1", "--master-port",
                                str(free_port()), REDLINE, "train", *words, f"--run-dir={tmp_path}/run"],
                               cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: last_step(tmp_path / "run") > 15)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Resuming" in err
    assert bit_equal(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("by", ["slurm", "openmpi"])
def test_variables_of_other_launchers_start_the_job(home, tmp_path, by):
    """As srun and mpirun set them on one machine; no MASTER_ADDR or port: ranks find each other by the job's number."""
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/launched")
    job = str(os.getpid() * 10 + (by == "slurm"))

    def variables(rank):
        if by == "slurm":
            return {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0",
                    "SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node1"}
        return {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "PMIX_NAMESPACE": job}
    finish([start(home, "train", "vae.yaml", f"--run-dir={tmp_path}/two", env=variables(r)) for r in range(2)], [0, 0])
    assert bit_equal(tmp_path / "two", tmp_path / "launched")


SPEECH = ["model.encoder.n_layers=1", "model.encoder.d_model=32", "model.encoder.n_heads=4", "model.train_ds.batch_size=4", "model.train_ds.max_duration=4.0",
          "model.train_ds.synth={kind: speech, num: 16, seed: 1, median_seconds: 3.0, min_seconds: 2.0, max_seconds: 4.0}"]
SEQUENCES = ["model.d_model=32", "model.d_ff=64", "model.n_heads=4", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.latent_dim=8",
             "model.train_ds.synth={kind: sequences, num: 40, seed: 1, vocab_size: 50, median_length: 15, max_length: 40}", "model.vocab_size=50"]


@pytest.mark.parametrize("recipe,words", [("nest_fast-conformer", SPEECH), ("nest_fast-conformer_ddp_example", SPEECH), ("nest_fast-conformer_high_performance", SPEECH),
                                          ("sequence_vae", SEQUENCES), ("train_with_collapse_detection", SEQUENCES)], ids=lambda x: x if isinstance(x, str) else "")
def test_the_guides_recipes_with_several_devices(tmp_path, recipe, words):
    """As the guides start them, with data and layers that fit a test; what they say of ranks is their own."""
    words = [ROOT / f"recipes/{recipe}.yaml", *words, "trainer.max_steps=4", "trainer.limit_val_batches=0", "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1"]
    err = run(tmp_path, "train", *words, f"--run-dir={tmp_path}/two", "--devices", "2")
    assert "starting 2 ranks" in err and "2 ranks share each batch" in err, err
    assert ("BatchNorm spans ranks" in err) == recipe.startswith("nest"), err
    assert last_step(tmp_path / "two") == 4 and (tmp_path / "two/ranks/1/steps.bin").exists()
    run(tmp_path, "train", *words, f"--run-dir={tmp_path}/one", "--devices", "1")
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < (5e-3 if recipe.endswith("high_performance") else 1e-4)  # bf16 rounds


def test_another_number_of_ranks_continues_the_same_order(home, tmp_path):
    words = ["vae.yaml", "trainer.max_steps=60"]
    run(home, "train", *words, f"--run-dir={tmp_path}/one")
    said, at = "", 0
    for count in (2, 3):
        process = start(home, "launch", "-n", count, "--", "train", *words, f"--run-dir={tmp_path}/two")
        wait_for(lambda: last_step(tmp_path / "two") > at + 5)
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=60)[1]
        assert process.returncode == 75, said
        assert at < (at := last_step(tmp_path / "two")) < 60
    said += run(home, "train", *words, f"--run-dir={tmp_path}/two")
    assert said.count("Resuming") == 2 and "other settings" not in said and "another data plan" not in said
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-4


def listening(pids):
    """Addresses that these processes listen at."""
    sockets = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if match := re.match(r"socket:\[(\d+)\]", os.readlink(link)):
                    sockets.add(match[1])
            except OSError:
                pass
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                found.append(words[1])
    return found


def test_nothing_listens_outside_loopback(home, tmp_path):
    """Started by `redline launch` (the launcher holds the store) and by hand (rank 0 does)."""
    first = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/a", "trainer.max_steps=100000")
    by_hand = ranks_by_hand(home, [(["train", "vae.yaml", f"--run-dir={tmp_path}/b", "trainer.max_steps=100000"], {})] * 2)
    try:
        wait_for(lambda: last_step(tmp_path / "a") > 2 and last_step(tmp_path / "b") > 2)
        for pids in ([first.pid, *children(first.pid)], [p.pid for p in by_hand]):
            addresses = listening(pids)
            assert addresses, "the store and the ranks listen somewhere"
            assert all(a.startswith("0100007F:") or a.startswith("0000000000000000FFFF00000100007F:") for a in addresses), addresses
    finally:
        for process in (first, *by_hand):
            process.send_signal(signal.SIGTERM)
        for process in (first, *by_hand):
            assert process.wait(60) == 75


def test_a_signal_to_one_rank_stops_all_after_the_same_step(home, tmp_path):
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/whole", "trainer.max_steps=60")
    process = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=60")
    wait_for(lambda: last_step(tmp_path / "run") > 3)
    os.kill(children(process.pid)[-1], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert 3 < last_step(tmp_path / "run") < 60
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=60")
    assert bit_equal(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("where", ["anywhere", "reduce", "checkpoint"])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_lost_rank_is_named_and_nobody_waits_forever(home, tmp_path, how, where):
    """Also inside the exchange of gradients and inside a checkpoint, by making these long. tests/faults/kill_ranks.py does more of the same."""
    count = {"anywhere": 12, "reduce": 4, "checkpoint": 4} if SLOW else {"anywhere": 6, "reduce": 2, "checkpoint": 2}
    campaign = Campaign(home, tmp_path, ranks=2, seed=int(os.environ.get("REDLINE_SEED", "1")), peer_timeout=2)
    for _ in range(count[where]):
        outcome = campaign.lose_one(how, where)
        assert outcome.problem == "", outcome
    assert campaign.finish() == "", "as if nothing had been"


def test_a_rank_stopped_after_its_last_step_holds_nobody(home, tmp_path):
    """The others have gone home: the launcher misses it, after as long as the ranks would have waited."""
    words = ["vae.yaml", "trainer.strategy.peer_timeout=2s", "trainer.max_steps=6", f"--run-dir={tmp_path}/run"]
    for rank in (1, 0):
        began = time.monotonic()
        err = launch(home, 2, *words, code=8, env={"REDLINE_FAULTS": f"stop.done.{rank}@1"})
        assert f"Rank {rank} has been stopped for 2 s while others have come to their end (last seen after its last step, 6) and is ended." in err, err
        assert 2 < time.monotonic() - began < 30
        launch(home, 2, *words)
        assert last_step(tmp_path / "run") == 6, "nothing is lost"
        shutil.rmtree(tmp_path / "run")


def test_a_killed_launcher_leaves_no_orphan(home, tmp_path):
    process = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=100000")
    wait_for(lambda: last_step(tmp_path / "run") > 2)
    pids = children(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(running(pid) for pid in pids), 15)


def test_a_bad_number_on_one_rank_is_handled_by_all(home, tmp_path):
    job = ["train", "vae.yaml", "trainer.max_steps=8"]
    run(home, *job, f"--run-dir={tmp_path}/one")
    words = [*job, f"--run-dir={tmp_path}/two"]
    finish(ranks_by_hand(home, [(words, {}), (words, {"REDLINE_FAULTS": "nan.loss@3"})]), [0, 0])
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-5
    events = (tmp_path / "two/events.jsonl").read_text()
    assert events.count('"guard.non_finite"') == 1
    assert (tmp_path / "two/ranks/1/events.jsonl").read_text().count('"guard.non_finite"') == 1


@pytest.mark.parametrize("step", [3, 8])
def test_damaged_weights_on_one_rank_send_all_back(home, tmp_path, step):
    """Also after the last step, when no verdict of a next one tells the others."""
    job = ["train", "vae.yaml", "trainer.max_steps=8", "trainer.guards.snapshot_every_n_steps=100"]
    launch(home, 2, *job[1:], f"--run-dir={tmp_path}/one")
    words = [*job, f"--run-dir={tmp_path}/two"]
    finish(ranks_by_hand(home, [(words, {}), (words, {"REDLINE_FAULTS": f"nan.optimizer@{step}"})]), [0, 0])
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) == 0
    assert '"guard.replayed"' in (tmp_path / "two/events.jsonl").read_text()
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all((one[k] == two[k]).all() for k in one), "as if it had not happened"


def test_pictures_are_drawn_by_rank_0_and_waited_for_by_nobody(home, tmp_path):
    """When a picture is due between two looks: weights are asked about before it, by all ranks or by none."""
    words = ["vae.yaml", "trainer.max_steps=10", "model.monitor.update_frequency=3", "model.monitor.plot_frequency=4"]
    launch(home, 2, *words, f"--run-dir={tmp_path}/two")
    assert (tmp_path / "two/plots/posterior_history.svg").exists()
    launch(home, 2, "vae.yaml", "trainer.max_steps=10", f"--run-dir={tmp_path}/plain")
    assert bit_equal(tmp_path / "two", tmp_path / "plain")


@pytest.mark.parametrize("sync", ["false", "true"])
def test_too_little_memory_on_one_rank_cuts_pieces_on_all(home, tmp_path, sync):
    """Also in the first piece, with sync_batchnorm as the guides write it: this model has no BatchNorm to wait in."""
    words = ["train", "vae.yaml", "trainer.max_steps=6", f"trainer.sync_batchnorm={sync}"]
    run(home, *words, f"--run-dir={tmp_path}/one")
    words.append(f"--run-dir={tmp_path}/two")
    finish(ranks_by_hand(home, [(words, {}), ([*words, "trainer.memory_limit=1400KiB"], {})]), [0, 0])
    for record in ("two", "two/ranks/1"):
        assert '"guard.out_of_memory"' in (tmp_path / record / "events.jsonl").read_text()
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-4


def test_too_little_memory_for_a_synchronised_piece_ends_with_a_sentence(home, tmp_path):
    """The rank cannot know yet which sums the others wait for."""
    words = ["train", "speech.yaml", "trainer.max_steps=6", "trainer.sync_batchnorm=true", f"--run-dir={tmp_path}/two"]
    texts = finish(ranks_by_hand(home, [(words, {}), ([*words, "trainer.memory_limit=4MiB"], {})]), [8, 6])
    assert "ran out of memory in its first piece" in texts[1] and "Rank 1 ended" in texts[0], texts


def test_a_stopped_rank_that_holds_the_store_is_named_in_time(home, tmp_path):
    """As under Slurm or Open MPI, where rank 0 holds it: nobody answers any more."""
    words = ["train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=100000", "trainer.strategy.peer_timeout=4s"]
    ranks = ranks_by_hand(home, [(words, {})] * 2)
    try:
        wait_for(lambda: last_step(tmp_path / "run") > 2)
        began = time.monotonic()
        ranks[0].send_signal(signal.SIGSTOP)
        _, err = ranks[1].communicate(timeout=60)
        assert ranks[1].returncode == 8 and "rank 0, which holds it, is stopped or cut off" in err, err
        assert 4 <= time.monotonic() - began < 4 + 3.5
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_a_rank_that_never_comes_is_named(home, tmp_path):
    words = ["train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.strategy.rendezvous_timeout=3s", "trainer.strategy.peer_timeout=2s"]
    ranks = ranks_by_hand(home, [(words, {})] * 2, world=3)
    texts = finish(ranks, [8, 8])
    assert "Rank 2 of 3 has not come" in texts[0], texts
    assert not (tmp_path / "run").exists()


def test_mixed_up_jobs_are_caught(home, tmp_path):
    port = free_port()
    a, b = ranks_by_hand(home, [(["train", "vae.yaml", f"--run-dir={tmp_path}/a"], {}), (["train", "convnext.yaml", f"--run-dir={tmp_path}/b"], {})], port)
    try:
        _, err = b.communicate(timeout=60)
        assert b.returncode == 2 and "Rank 1 belongs to another job" in err, err
        assert a.poll() is None, "a stranger does not end the job that it came to"
    finally:
        for process in (a, b):
            process.kill()
            process.communicate()


def test_variables_that_contradict_each_other(home, tmp_path):
    both = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    several = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "29500"}
    for env, sentence in (({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"), ({"RANK": "1"}, "RANK is set, but WORLD_SIZE is not"),
                          ({"RANK": "2", "WORLD_SIZE": "2"}, "only 2 ranks"), ({"RANK": "one", "WORLD_SIZE": "2"}, "'one'"),
                          ({"RANK": "0", "WORLD_SIZE": "2", **both}, "MASTER_PORT"),
                          ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "host7", "MASTER_PORT": "29500"}, "LOCAL_RANK is not set"),
                          (several, "MASTER_ADDR does not say"), ({**several, "MASTER_ADDR": "localhost"}, "reaches itself by"),
                          # What this machine alone knows as itself is found out when it is looked up.
                          ({**several, "MASTER_ADDR": "0.0.0.0"}, "no other machine reaches")):
        assert sentence in run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/x", code=2, env=env)
    err = run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/x", "trainer.num_nodes=2", code=2)
    assert "torchrun" in err
    assert not (tmp_path / "x").exists()


def test_what_launch_cannot_start_is_refused(home, tmp_path):
    train = ["train", "vae.yaml", f"--run-dir={tmp_path}/x"]
    for words, sentence in ((["-n", "0", "--", *train], "0"), (["-n", "two", "--", *train], "two"), (["--", *train], "--ranks"),
                            (["-n", "2"], "What should the ranks run?"), (["-n", "2", "--", "tune", "vae.yaml"], "Ranks run 'train', not 'tune'"),
                            (["-n", "2", "--grace", "nan", "--", *train], "--grace is nan"), (["-n", "2", "--grace", "-1", "--", *train], "--grace is -1"),
                            (["-n", "2", "--", *train, "trainer.devices=3"], "trainer.devices is 3, but redline started 2 ranks"),
                            (["-n", "2", "--", "train", "nowhere.yaml"], "nowhere.yaml")):
        assert sentence in run(home, "launch", *words, code=2), words
    for devices in ("0", "-2", "many", "99999999999"):
        assert "trainer.devices" in run(home, *train, f"trainer.devices={devices}", code=2)
    assert not (tmp_path / "x").exists()
