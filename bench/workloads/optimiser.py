"""The optimiser step at 20 M parameters: redline's against torch::optim::AdamW and PyTorch's fused AdamW in Python."""
from frame import Bar, ROOT, Workload


def workload(env):
    bench = env.build / "bench" / "optimiser_bench"
    return Workload(
        name="optimiser",
        sentence="AdamW at 20 M parameters, one step",
        variants={"redline": [bench, "redline", "3"], "torch::optim": [bench, "torch", "3"],
                  "python fused": [env.peers_python, ROOT / "bench/peers/fused_adamw.py", "--seconds", "3"],
                  "redline, clipped": [bench, "clipped", "3"],
                  "python fused, clipped": [env.peers_python, ROOT / "bench/peers/fused_adamw.py", "--seconds", "3", "--clip"]},
        bars=[Bar("step_seconds", "redline", "torch::optim", at_least=5.0, smaller_is_better=True),
              Bar("step_seconds", "redline", "python fused", smaller_is_better=True, sentence="not slower than PyTorch's fused AdamW"),
              Bar("step_seconds", "redline, clipped", "python fused, clipped", smaller_is_better=True,
                  sentence="with the gradient's norm and clipping (fused AdamW after clip_grad_norm_)")],
    )
