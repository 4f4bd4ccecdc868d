"""Best against best at an effective batch of 8 clips: redline (buckets, workers) against NeMo at the fastest of its settings."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def workload(env):
    nemo = {"nemo_b8_w0": jobs.nemo(env, "--batch", 8), "nemo_b8_w2": jobs.nemo(env, "--batch", 8, "--workers", 2),
            "nemo_b2_x4_w1": jobs.nemo(env, "--batch", 2, "--accumulate", 4, "--workers", 1)}
    best = "|".join(nemo)
    return Workload(
        "speech_best", "Whole training at 8 clips per optimiser step: FLAC clips of 1.2-12 s with noise, d_model 176, 4 layers, 1024 classes.",
        {"redline": jobs.redline(env, "model.train_ds.batch_size=8", "model.train_ds.num_workers=1", "model.train_ds.num_buckets=4"), **nemo},
        [Bar("samples_per_second", "redline", best, 3.0), Bar("audio_seconds_per_second", "redline", best, 3.0),
         Bar("peak_mib", "redline", "nemo_b8_w0", 1.25, smaller_is_better=True, sentence="peak of the whole process at equal batch (at most 0.8×)")],
        notes="NeMo runs in the plainest PyTorch loop (no Lightning, no logging), which favours it.")
