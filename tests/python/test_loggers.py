"""What python/loggers.py writes, read by the real MLflow and by Weights & Biases' own package where they are installed, and by a server of our own otherwise."""
import ctypes
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    events = [{"time": "x", "kind": "run.started", "fields": {}}, {"time": "x", "kind": "run.ended", "fields": {"step": 3, "why": "max_steps"}}]
    (folder / "events.jsonl").write_text('{"format":"redline.events","version":1}\n' + "".join(json.dumps(event) + "\n" for event in events))
    points = [{"step": step, "name": name, "value": value} for step in (1, 2, 3) for name, value in (("loss", 1 / step), ("val_loss/other", 2 / step), ("wall_time", 1.79e9 + step))]
    (folder / "metrics.jsonl").write_text('{"format":"redline.metrics","version":1}\n' + "".join(json.dumps(point) + "\n" for point in points))
    (folder / "config.resolved.yaml").write_text("trainer:\n  max_steps: 3  # flag\ntask: sequence_vae\n")
    return folder


def logger(kind, run, *settings, code=0):
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([sys.executable, "-B", str(ROOT / "python/loggers.py"), kind, str(run), "--name", "mine", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_the_file_store(run, tmp_path):
    logger("mlflow", run, "experiment_name=exp", f"tracking_uri={tmp_path}/mlruns")
    experiment = next(path for path in (tmp_path / "mlruns").iterdir())
    folder = next(path for path in experiment.iterdir() if path.is_dir())
    assert 'name: "exp"' in (experiment / "meta.yaml").read_text() and "status: 3" in (folder / "meta.yaml").read_text()
    assert (folder / "metrics/loss").read_text().splitlines() == ["1790000001000 1.0 1", "1790000002000 0.5 2", "1790000003000 0.3333333333333333 3"]
    assert (folder / "metrics/val_loss/other").exists() and not (folder / "metrics/wall_time").exists()
    assert (folder / "params/trainer.max_steps").read_text() == "3"
    # Continued: the same run, nothing twice.
    with (run / "events.jsonl").open("a") as file:
        file.write('{"time":"x","kind":"run.resumed","fields":{}}\n{"time":"x","kind":"run.ended","fields":{"why":"SIGTERM"}}\n')
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step":4,"name":"loss","value":0.25}\n')
    logger("mlflow", run, "experiment_name=exp", f"tracking_uri={tmp_path}/mlruns")
    assert [line.split()[2] for line in (folder / "metrics/loss").read_text().splitlines()] == ["1", "2", "3", "4"]
    assert "status: 5" in (folder / "meta.yaml").read_text() and sum(path.is_dir() for path in experiment.iterdir()) == 1


def test_a_killed_run_ends_its_logger_and_nothing_is_sent_twice(run, tmp_path):
    """Also where an orphan's new parent is not process 1 (a user session of systemd, say)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    events = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(events[:2]))
    words = [str(ROOT / "python/loggers.py"), "mlflow", str(run), "--set", f"tracking_uri={tmp_path}/mlruns"]
    starter = subprocess.Popen([sys.executable, "-c", f"import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-B', *{words!r}]).pid, flush=True); time.sleep(600)"],
                               stdout=subprocess.PIPE, text=True)
    child = int(starter.stdout.readline())
    until = time.monotonic() + 60
    while not (found := list((tmp_path / "mlruns").glob("*/*/metrics/loss"))) or len(found[0].read_text().splitlines()) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.2)  # the line that says how far it came
    starter.kill()
    starter.wait()
    until = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended[0] and os.waitstatus_to_exitcode(ended[1]) == 1, "it ends by itself"
    (run / "events.jsonl").write_text("".join(events))
    logger("mlflow", run, f"tracking_uri={tmp_path}/mlruns")
    assert [line.split()[2] for line in found[0].read_text().splitlines()] == ["1", "2", "3"]


def test_the_real_mlflow_reads_it(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # version 3 asks for it
    logger("mlflow", run, "experiment_name=exp", f"tracking_uri={tmp_path}/mlruns")
    client = mlflow.tracking.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    found = client.search_runs([client.get_experiment_by_name("exp").experiment_id])[0]
    assert found.info.status == "FINISHED" and found.info.run_name == "mine" and found.data.params["trainer.max_steps"] == "3"
    assert found.data.metrics == {"loss": 1 / 3, "val_loss/other": 2 / 3}
    assert [(m.step, m.timestamp) for m in client.get_metric_history(found.info.run_id, "loss")] == [(1, 1790000001000), (2, 1790000002000), (3, 1790000003000)]


class Server(http.server.BaseHTTPRequestHandler):
    calls = []

    def answer(self, body):
        what = self.path.split("/api/2.0/mlflow/")[1].split("?")[0]
        self.calls.append((what, body))
        answers = {"experiments/create": {"experiment_id": "7"}, "runs/create": {"run": {"info": {"run_id": "abc"}}}}
        self.send_response(404 if what == "experiments/get-by-name" else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(what, {})).encode())

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_):
        pass


def test_a_tracking_server_is_asked_through_its_interface(run):
    Server.calls.clear()
    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        logger("mlflow", run, "experiment_name=exp", f"tracking_uri=http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    whats = [what for what, _ in Server.calls]
    assert whats[:3] == ["experiments/get-by-name", "experiments/create", "runs/create"] and whats[-1] == "runs/update"
    sent = [metric for what, body in Server.calls if what == "runs/log-batch" for metric in body.get("metrics", [])]
    assert [m["step"] for m in sent if m["key"] == "loss"] == [1, 2, 3] and sent[0]["timestamp"] == 1790000001000
    assert Server.calls[-1][1]["status"] == "FINISHED" and (run / "mlflow_run_id").read_text() == "abc"


def test_what_cannot_be_reached_is_one_sentence(run):
    assert "cannot be reached" in logger("mlflow", run, "tracking_uri=http://127.0.0.1:9", code=1).stderr


def test_offline_files_of_weights_and_biases(run):
    if subprocess.run([sys.executable, "-c", "import wandb"], capture_output=True).returncode != 0:
        assert "wandb is not installed" in logger("wandb", run, code=1).stderr
        pytest.skip("wandb is not installed")
    logger("wandb", run, "project=exp")
    file = next((run / "wandb").glob("offline-run-*/run-*.wandb"))
    assert b"val_loss/other" in file.read_bytes()
