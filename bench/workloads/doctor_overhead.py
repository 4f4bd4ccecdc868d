"""What the doctor's measuring costs a step of 1 ms: phase timers, memory reading and the record's row, on against off."""
from frame import Bar, Workload


def workload(env):
    return Workload(
        name="doctor_overhead",
        sentence="Measuring on against off at steps of 1 ms, interleaved in one process",
        variants={"redline": [env.build / "bench" / "phase_timer_bench", "60"]},
        bars=[Bar("overhead_percent", "redline", "redline", smaller_is_better=True, at_most=1.0, sentence="timers, memory reading and record, of the step's wall time")],
    )
