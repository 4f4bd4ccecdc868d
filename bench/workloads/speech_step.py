"""NEST forward + backward at 8 clips of 8 s, d_model 176, 4 layers, 1024 classes: redline against NeMo in eager mode and under torch.compile."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402

STEPS = 3


def workload(env):
    bench = [env.build / "bench/speech_step_bench", STEPS, 8, 8]
    nemo = {f"nemo_{mode}": jobs.Server(env, "nemo_step.py", "--mode", mode, warm_up=2, ask=STEPS) for mode in ("eager", "compile")}
    return Workload(
        "speech_step", "Forward + backward alone, 8 × 8 s, d_model 176, 4 layers, 1024 classes, fp32, 2 threads.",
        {"redline": bench + [1, 2], **nemo},
        [Bar("step_ms", "redline", "|".join(nemo), 2.0, smaller_is_better=True, sentence="against the faster of eager and compiled"),
         Bar("step_mib", "redline", "nemo_eager", 1.25, smaller_is_better=True, sentence="growth of the process while stepping (at most 0.8×)"),
         Bar("step_ms", "nemo_compile", "nemo_eager", smaller_is_better=True, claim="compile", sentence="torch.compile of NeMo's encoder")])
