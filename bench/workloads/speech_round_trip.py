"""Weights between redline and NeMo, both ways, with equal losses and no tensor lost."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def workload(env):
    command = [env.peers_python, ROOT / "bench/speech/nemo_round_trip.py", env.redline, jobs.clips(env) / "train_manifest.json", env.work / "round_trip"]
    return Workload(
        "speech_round_trip", "redline -> safetensors -> NeMo's load_state_dict(strict) -> loss; .nemo -> `redline convert nemo` -> the same tensors.",
        {"redline": command},
        [Bar("relative_loss_difference", "redline", "redline", at_most=1e-4)],
        rounds=1)
