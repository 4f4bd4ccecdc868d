"""The doctor's self-test on a small sequence VAE."""
from doctor_selftest import selftest_workload


def workload(env):
    words = ["recipes/sequence_vae.yaml", "--batch_size", "4", "--num_workers", "1", "--precision", "32", "model.d_model=64", "model.d_ff=256",
             "model.n_encoder_layers=2", "model.n_decoder_layers=2", "model.max_sequence_length=128"]
    return selftest_workload(env, "doctor_vae", "sequence_vae", words)
