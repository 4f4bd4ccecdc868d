"""The doctor's self-test on a small NEST."""
from doctor_selftest import selftest_workload


def workload(env):
    words = ["recipes/nest_fast-conformer_small.yaml", "--batch_size", "2", "--num_workers", "1", "model.encoder.n_layers=2", "model.encoder.d_model=64",
             "model.train_ds.synth.median_seconds=1.5", "model.train_ds.synth.max_seconds=2.5", "model.validation_ds.synth.median_seconds=1.5",
             "model.validation_ds.synth.max_seconds=2.5"]
    return selftest_workload(env, "doctor_speech", "speech_ssl", words)
