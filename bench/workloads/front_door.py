"""How long `redline --help` takes beside a program that is linked to LibTorch and does nothing."""
import subprocess
import time

from frame import Bar, Workload


def seconds_of(*command):
    def run():
        begin = time.perf_counter()
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        return {"seconds": time.perf_counter() - begin}
    return run


def workload(env):
    return Workload(
        name="front_door",
        sentence="`redline --help` against an empty program linked to LibTorch",
        variants={"redline --help": seconds_of(env.redline, "--help"), "empty program": seconds_of(env.build / "bench" / "empty_program")},
        bars=[Bar("seconds", "redline --help", "empty program", smaller_is_better=True, extra_at_most=0.1, sentence="within 0.1 s of the empty program")],
        rounds=10,
    )
