"""The stopwatch's test on a small NEST."""
from doctor_selftest import selftest_workload


def workload(env):
    lengths = [f"model.{part}.synth.{name}={value}" for part in ("train_ds", "validation_ds") for name, value in
               (("median_seconds", 2), ("min_seconds", 1.8), ("max_seconds", 2.4))]
    words = ["recipes/nest_fast-conformer_small.yaml", "--batch_size", "1", "--num_workers", "1", "trainer.intra_op_threads=1", "model.encoder.n_layers=1",
             "model.encoder.d_model=32", "model.encoder.n_heads=4", "model.encoder.subsampling_conv_channels=32", "model.num_classes=128", *lengths]
    return selftest_workload(env, "doctor_speech", "speech_ssl", words)
