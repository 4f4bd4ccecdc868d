"""What the guards and the accounting allocator cost a step of 20 M parameters."""
from frame import Bar, Workload


def workload(env):
    return Workload(
        name="guards",
        sentence="Guards and accounting allocator on against off, 20 M parameters; interleaved in one process",
        variants={"redline": [env.build / "bench" / "guards_bench"]},
        bars=[Bar("guards_percent", "redline", "redline", smaller_is_better=True, at_most=1.0, sentence="of the step")],
    )
