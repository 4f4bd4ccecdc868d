"""Puts a run's metrics into the stores of other tools, in a process of its own, by reading the run's record as it grows.

`redline train` starts this (exp_manager.create_mlflow_logger, create_wandb_logger); it may also be started by hand on a run that has ended. The
record's own formats (docs/formats.md) are the only interface, so nothing here can hold a training step up.
"""
import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

POLL_SECONDS = 0.5
MLFLOW_STATUS = {"running": 1, "finished": 3, "failed": 4, "killed": 5}


class Lines:
    """The whole JSON lines that were added to a file since the last look, each with the place where it begins."""

    def __init__(self, path, offset=0):
        self.path, self.offset = path, offset

    def new(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        found = []
        for line in data[:data.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                found.append((self.offset, json.loads(line)))
            except ValueError:
                pass
            self.offset += len(line)
        return found


def flat(node, path=""):
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def read_config(run):
    """The resolved config as key and text; without PyYAML the file goes along as it is."""
    try:
        import yaml
        with open(os.path.join(run, "config.resolved.yaml"), encoding="utf-8") as file:
            return {key: str(value) for key, value in flat(yaml.safe_load(file)) if value is not None}
    except (ImportError, OSError, ValueError):
        return {}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def plain(text):
    return json.dumps(str(text))


class MlflowStore:
    """MLflow's file store, written directly (https://mlflow.org/docs/latest/ml/tracking/backend-stores): a folder per experiment and run, a file per
    metric with a line "milliseconds value step", a file per parameter and tag."""

    def __init__(self, run, name, settings):
        root = settings.get("tracking_uri", os.path.join(os.getcwd(), "mlruns"))
        self.root = os.path.abspath(root[7:] if root.startswith("file://") else root)
        experiment = self.experiment(settings.get("experiment_name", "redline"))
        kept = os.path.join(run, "mlflow_run_id")  # a run that is continued goes on in the same place
        self.id = open(kept, encoding="utf-8").read().strip() if os.path.exists(kept) else uuid.uuid4().hex
        self.folder = os.path.join(self.root, experiment, self.id)
        self.meta = {"artifact_uri": "file://" + os.path.join(self.folder, "artifacts"), "end_time": None, "entry_point_name": "", "experiment_id": experiment,
                     "lifecycle_stage": "active", "run_id": self.id, "run_name": settings.get("run_name", name), "run_uuid": self.id, "source_name": "", "source_type": 4,
                     "source_version": "", "start_time": int(time.time() * 1000), "status": MLFLOW_STATUS["running"], "tags": [], "user_id": os.environ.get("USER", "")}
        for folder in ("artifacts", "metrics", "params", "tags"):
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        write(kept, self.id)
        write(os.path.join(self.folder, "tags", "mlflow.runName"), self.meta["run_name"])
        write(os.path.join(self.folder, "tags", "redline.run_dir"), run)
        self.save()

    def experiment(self, name):
        for folder in sorted(os.listdir(self.root)) if os.path.isdir(self.root) else []:
            try:
                with open(os.path.join(self.root, folder, "meta.yaml"), encoding="utf-8") as file:
                    if f"name: {plain(name)}" in file.read().splitlines():
                        return folder
            except OSError:
                pass
        number = str(int.from_bytes(os.urandom(7), "big"))
        now = int(time.time() * 1000)
        write(os.path.join(self.root, number, "meta.yaml"), f'artifact_location: {plain("file://" + os.path.join(self.root, number))}\ncreation_time: {now}\n'
              f'experiment_id: {plain(number)}\nlast_update_time: {now}\nlifecycle_stage: active\nname: {plain(name)}\n')
        return number

    def save(self):
        lines = [f"{key}: {'null' if value is None else value if isinstance(value, int) else '[]' if value == [] else plain(value)}" for key, value in sorted(self.meta.items())]
        write(os.path.join(self.folder, "meta.yaml"), "\n".join(lines) + "\n")

    def config(self, values):
        for key, value in values.items():
            write(os.path.join(self.folder, "params", key), value[:6000])

    def metrics(self, step, values, seconds):
        for name, value in values.items():
            path = os.path.join(self.folder, "metrics", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{int(seconds * 1000)} {value!r} {step}\n")

    def end(self, why):
        self.meta["end_time"] = int(time.time() * 1000)
        self.meta["status"] = MLFLOW_STATUS["killed" if why.startswith("SIG") else "failed" if why == "failed" else "finished"]
        self.save()


class MlflowServer:
    """A tracking server through its REST interface, version 2.0 (https://mlflow.org/docs/latest/rest-api.html)."""

    def __init__(self, run, name, settings):
        self.base = settings["tracking_uri"].rstrip("/") + "/api/2.0/mlflow/"
        experiment = settings.get("experiment_name", "redline")
        found = self.ask("experiments/get-by-name?experiment_name=" + urllib.parse.quote(experiment), missing=True)
        number = found["experiment"]["experiment_id"] if found else self.ask("experiments/create", {"name": experiment})["experiment_id"]
        kept = os.path.join(run, "mlflow_run_id")
        if os.path.exists(kept):
            self.id = open(kept, encoding="utf-8").read().strip()
            self.ask("runs/update", {"run_id": self.id, "status": "RUNNING"})
        else:
            tags = [{"key": "redline.run_dir", "value": run}]
            made = self.ask("runs/create", {"experiment_id": number, "run_name": settings.get("run_name", name), "start_time": int(time.time() * 1000), "tags": tags})
            self.id = made["run"]["info"]["run_id"]
            write(kept, self.id)

    def ask(self, what, body=None, missing=False):
        request = urllib.request.Request(self.base + what, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            if missing and error.code == 404:
                return None
            sys.exit(f"loggers: {self.base}{what} answered {error.code} {error.reason}")
        except OSError as error:
            sys.exit(f"loggers: {self.base} cannot be reached: {error}")

    def batches(self, key, items, most):
        for begin in range(0, len(items), most):
            self.ask("runs/log-batch", {"run_id": self.id, key: items[begin:begin + most]})

    def config(self, values):
        self.batches("params", [{"key": key, "value": value[:500]} for key, value in values.items()], 100)

    def metrics(self, step, values, seconds):
        self.batches("metrics", [{"key": name, "value": value, "timestamp": int(seconds * 1000), "step": step} for name, value in values.items()], 1000)

    def end(self, why):
        self.ask("runs/update", {"run_id": self.id, "end_time": int(time.time() * 1000), "status": "KILLED" if why.startswith("SIG") else "FAILED" if why == "failed" else "FINISHED"})


def mlflow(run, name, settings):
    uri = settings.get("tracking_uri", "")
    return (MlflowServer if uri.startswith(("http://", "https://")) else MlflowStore)(run, name, settings)


class WandbStore:
    """Weights & Biases' own package, offline: `wandb sync` takes the folder from there."""

    def __init__(self, run, name, settings):
        try:
            import wandb
        except ImportError:
            sys.exit("loggers: the package wandb is not installed for this Python (REDLINE_PYTHON names another)")
        kept = os.path.join(run, "wandb_run_id")
        identity = open(kept, encoding="utf-8").read().strip() if os.path.exists(kept) else uuid.uuid4().hex[:8]
        write(kept, identity)
        self.run = wandb.init(project=settings.get("project", "redline"), name=settings.get("name", name), id=identity, dir=run, mode="offline", resume="allow",
                              settings=wandb.Settings(console="off", x_disable_stats=True))

    def config(self, values):
        self.run.config.update(values, allow_val_change=True)

    def metrics(self, step, values, seconds):
        self.run.log(values, step=step)

    def end(self, why):
        self.run.summary["ended"] = why
        self.run.finish()


def follow(run, kind, store, once):
    # How far the metrics were sent, for a run that is continued.
    place = os.path.join(run, f"{kind}_sent")
    sent = int(open(place, encoding="utf-8").read() or 0) if os.path.exists(place) else 0
    metrics, events = Lines(os.path.join(run, "metrics.jsonl"), sent), Lines(os.path.join(run, "events.jsonl"))
    waiting, begins, config_sent, ended = {}, {}, False, None
    parent = os.getppid()
    while True:
        for _, event in events.new():
            if event.get("kind") in ("run.started", "run.resumed"):
                ended = None
            elif event.get("kind") in ("run.ended", "run.failed"):
                ended = event["fields"].get("why", "failed")
        if not config_sent and os.path.exists(os.path.join(run, "config.resolved.yaml")):
            store.config(read_config(run))
            config_sent = True
        for begin, point in metrics.new():
            if "name" in point:
                begins.setdefault(point["step"], begin)
                waiting.setdefault(point["step"], {})[point["name"]] = float(point["value"])
        # A step's lines come together; the last one may still grow until the next look.
        last = max(waiting, default=None)
        for step in sorted(waiting):
            if step == last and ended is None and not once:
                continue
            values = waiting.pop(step)
            begins.pop(step)
            store.metrics(step, {name: value for name, value in values.items() if name != "wall_time"}, values.get("wall_time", time.time()))
        # Also while the last step waits: who kills the run kills this too, and what is continued must not be sent twice.
        if min(begins.values(), default=metrics.offset) != sent:
            sent = min(begins.values(), default=metrics.offset)
            write(place, str(sent))
        if ended is not None or once:
            store.end(ended or "")
            return
        if os.getppid() != parent:  # nobody will write any more
            sys.exit("loggers: the run's process is gone")
        time.sleep(POLL_SECONDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["mlflow", "wandb"])
    parser.add_argument("run")
    parser.add_argument("--name", default="")
    parser.add_argument("--set", action="append", default=[], help="key=value of the tool's own settings")
    parser.add_argument("--once", action="store_true", help="what is there now, and stop")
    arguments = parser.parse_args()
    settings = dict(item.split("=", 1) for item in arguments.set)
    store = {"mlflow": mlflow, "wandb": WandbStore}[arguments.kind](os.path.abspath(arguments.run), arguments.name or os.path.basename(os.path.abspath(arguments.run)), settings)
    follow(os.path.abspath(arguments.run), arguments.kind, store, arguments.once)


if __name__ == "__main__":
    main()
