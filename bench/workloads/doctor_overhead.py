"""What the doctor's measuring costs a step of 1 ms: phase timers, memory reading, the record's row and what the machine does meanwhile, on against off."""
from frame import Bar, Workload


def workload(env):
    return Workload(
        name="doctor_overhead",
        sentence="Measuring on against off at steps of 1 ms, interleaved in one process on one core",
        variants={"redline": [env.build / "bench" / "phase_timer_bench", "12"]},
        bars=[Bar("overhead_percent", "redline", "redline", smaller_is_better=True, at_most=0.5, sentence="timers, memory reading, record and surroundings, of the step's wall time")],
        rounds=3,
    )
