"""What redline's loop adds to a step, and what logging every step adds; each round interleaves both variants in one process."""
from frame import Bar, Workload


def workload(env):
    return Workload(
        name="loop",
        sentence="The loop with all recording on against a bare hand-written LibTorch loop, and logging every step against every 50",
        variants={"redline": [env.build / "bench" / "loop_bench"]},
        bars=[Bar("overhead_percent", "redline", "redline", smaller_is_better=True, at_most=3.0, sentence="over the bare loop, step of about 1 ms"),
              Bar("overhead_percent_larger_step", "redline", "redline", smaller_is_better=True, at_most=3.0, sentence="over the bare loop, larger step"),
              Bar("logging_percent", "redline", "redline", smaller_is_better=True, at_most=2.0, sentence="every step against every 50, step of about 10 ms")],
    )
