"""A job's training step at a fixed shape: compiled against LibTorch's operators alone (plain), and against the job's own eager step, for the four tasks."""
from frame import Bar, ROOT, Workload

# What the step is of: recipe, words, and the bar against the plain step.
JOBS = {
    "convnext": ("convnext_small.yaml", ["model.base_channels=64", "model.num_blocks=4", "model.depths=[]", "model.dims=[]", "model.num_classes=10", "model.image_size=64",
                                         "model.train_ds.batch_size=32", "model.drop_path_rate=0"], 1.2),
    "speech": ("nest_fast-conformer_small.yaml", ["model.train_ds.batch_size=8", "model.longest_clip=8"], 1.2),
    "vae": ("sequence_vae.yaml", ["preset=quick", "model.d_model=64", "model.n_heads=4", "model.d_ff=256", "model.max_sequence_length=128", "trainer.precision=32-true"], 1.3),
    "lss": ("lss_small.yaml", ["model.train_ds.batch_size=2"], 1.1),
}
NO_KERNELS = {"convnext": ["model.fused_kernels=false"], "speech": ["model.fused_kernels=false"], "vae": [], "lss": ["model.fused_kernels=false"]}


def workload(env):
    bench = env.build / "bench/compiled_step_bench"
    variants, bars = {}, []
    for name, (recipe, words, bar) in JOBS.items():
        for way in ("plain", "compiled", "eager"):
            steps = 5
            variants[f"{name}_{way}"] = [bench, steps, way, ROOT / "recipes" / recipe, *words, *(NO_KERNELS[name] if way == "plain" else []), "trainer.intra_op_threads=2"]
        bars.append(Bar("step_ms", f"{name}_compiled", f"{name}_plain", bar, smaller_is_better=True, sentence=f"{name}: against the plain task"))
        bars.append(Bar("step_ms", f"{name}_compiled", f"{name}_eager", smaller_is_better=True, claim="compile", sentence=f"{name}: against redline's own eager step"))
    return Workload("compiled_step", "Forward, backward, check of the gradients and optimiser at the shape of the longest batch, fp32, 2 threads.", variants, bars, rounds=2)
