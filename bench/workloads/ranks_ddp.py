"""Two ranks of one thread against PyTorch's DDP on Gloo, beyond what one process gains; and what a launcher costs one rank."""
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/ranks"))
import ddp_bench  # noqa: E402

BATCH = 64


def workload(env):
    python = env.peers_python if env.peers_python.exists() else sys.executable
    folder = env.work / "ranks_ddp"
    folder.mkdir(parents=True, exist_ok=True)
    steps, rounds = ddp_bench.steps_for(BATCH, 4, python), []

    def run():
        rounds.append(ddp_bench.one_round(env.redline, folder, BATCH, steps, len(rounds) % 2 == 1, python))
        return rounds[-1]

    return Workload(
        name="ranks_ddp",
        sentence=f"A ConvNeXt of 5.5 M parameters on pictures of 64 x 64, batch {BATCH} of all ranks, one thread a rank. PyTorch: channels last, fused AdamW, gradients as "
                 "bucket views, static graph, one batch ready in memory; redline has decoded pictures in memory and makes batches of them. Figures are samples/s; every round runs all ways there and back.",
        variants={"redline": run},
        bars=[Bar("short_of_1.1_beyond", "redline", "redline", smaller_is_better=True, at_most=1.0,
                  sentence="1.1 over (two ranks' ratio over one process's): at most 1 when redline gains 1.1 times more from ranks"),
              Bar("launcher_overhead_percent", "redline", "redline", smaller_is_better=True, at_most=2.0, sentence="one rank under `redline launch` against plain")],
        rounds=3,
    )
