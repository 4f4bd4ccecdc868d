"""The stopwatch's test on a small sequence VAE."""
from doctor_selftest import selftest_workload


def workload(env):
    words = ["recipes/sequence_vae.yaml", "--batch_size", "4", "--num_workers", "1", "--precision", "32", "trainer.intra_op_threads=1", "model.d_model=32",
             "model.n_heads=4", "model.d_ff=64", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.max_sequence_length=64"]
    return selftest_workload(env, "doctor_vae", "sequence_vae", words)
