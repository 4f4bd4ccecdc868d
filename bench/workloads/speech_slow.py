"""The first guide's slow settings (batch 2, no workers, no buckets): redline against NeMo at the same settings, same clips."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402


def workload(env):
    return Workload(
        "speech_slow", "Whole training at batch 2, workers 0, no buckets: FLAC clips of 1.2-12 s with noise, d_model 176, 4 layers, 1024 classes.",
        {"redline": jobs.redline(env, "model.train_ds.batch_size=2", "model.train_ds.num_workers=0", "model.train_ds.num_buckets=1"),
         "nemo": jobs.nemo(env, "--batch", 2, "--workers", 0)},
        [Bar("samples_per_second", "redline", "nemo", 1.5), Bar("audio_seconds_per_second", "redline", "nemo", 1.5),
         Bar("peak_mib", "redline", "nemo", 1.25, smaller_is_better=True, sentence="peak of the whole process (at most 0.8×)")],
        notes="NeMo runs in the plainest PyTorch loop (no Lightning, no logging), which favours it.")
