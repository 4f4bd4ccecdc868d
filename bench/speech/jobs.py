"""What the speech workloads share: generated FLAC clips and the commands of both sides on them."""
import atexit
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Clips of the manifest, and per measured turn: multiples of the batches used, so that drop_last drops nothing. A switch is timed over the whole
# manifest after a first pass: every batch size sees the same clips, a cache is full, and a precision's kernels are compiled.
CLIPS, TURN = 96, 24
SWITCH_TURN = CLIPS


def clips(env):
    """Log-normal 1.2-12 s clips with noise clips beside them, made once with redline itself."""
    folder = env.work / "nest_clips"
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        subprocess.run([str(env.redline), "data", "synth", "speech", "--out", str(part), "--num", str(CLIPS), "--seed", "1", "--median_seconds", "4",
                        "--min_seconds", "1.2", "--max_seconds", "12", "--num_validation", "16", "--num_noise", "16"], check=True, stdout=sys.stderr)
        part.rename(folder)
    return folder


def tars(env):
    folder = env.work / "nest_tars"
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        subprocess.run([str(env.redline), "data", "tar", str(clips(env) / "train_manifest.json"), "--out", str(part), "--num-shards", "2"], check=True, stdout=sys.stderr)
        part.rename(folder)
    return folder


def redline(env, *overrides, count=TURN):
    folder = clips(env)
    return [sys.executable, HERE / "redline_train.py", env.redline, folder / "train_manifest.json", folder / "noise_manifest.json", count, *overrides]


def switches(env, batch, workers, *more):
    """redline with some of the guides' switches; no buckets unless asked."""
    plain = [] if any("num_buckets" in word for word in more) else ["model.train_ds.num_buckets=1"]
    return redline(env, f"model.train_ds.batch_size={batch}", f"model.train_ds.num_workers={workers}", *plain, *more, count=SWITCH_TURN)


class Server:
    """A NeMo process that stays alive between rounds: importing NeMo takes longer than a measurement."""

    def __init__(self, env, script, *words, warm_up, ask):
        self.command = [str(word) for word in (env.peers_python, HERE / script, *words)]
        self.warm_up, self.amount, self.process = warm_up, ask, None

    def __call__(self):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE)
            atexit.register(self.process.kill)
            self.read()
            self.ask(self.warm_up)
        answer = self.ask(self.amount)
        if "ms" in answer:
            answer["step_ms"] = statistics.median(answer.pop("ms"))
        answer["step_mib"] = answer["peak_mib"] - answer["base_mib"]
        return answer

    def ask(self, amount):
        self.process.stdin.write(f"{amount}\n")
        self.process.stdin.flush()
        return self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self.process.wait()}")
        return json.loads(line)


def nemo(env, *words):
    folder = clips(env)
    return Server(env, "nemo_train.py", "--manifest", folder / "train_manifest.json", "--noise", folder / "noise_manifest.json", *words,
                  warm_up=16, ask=TURN)
