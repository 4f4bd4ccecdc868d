import neighbour


def workload(env):
    # The precision is typed: the build this is compared with may choose one by how busy the machine is.
    words = [neighbour.ROOT / "recipes/sequence_vae.yaml", "model.d_model=64", "trainer.precision=bf16-mixed"]
    return neighbour.neighbour_workload(env, "neighbour_vae", "The sequence VAE", words, steps=46, warm_up=6, rounds=4)
