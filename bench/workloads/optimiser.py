"""The optimiser step at 20 M parameters: redline's on LibTorch's fused kernel against PyTorch's fused AdamW in Python."""
from frame import Bar, Workload


def workload(env):
    peer = [env.peers_python, __file__.replace("workloads/optimiser.py", "peers/fused_adamw.py"), "--seconds", "3"]
    return Workload(
        name="optimiser",
        sentence="AdamW at 20 M parameters, one step",
        variants={"redline": [env.build / "bench" / "optimiser_bench", "--seconds", "3"], "python fused": peer},
        bars=[Bar("step_seconds", "redline", "python fused", at_least=1.0, smaller_is_better=True, sentence="not slower than PyTorch's fused AdamW")],
    )
