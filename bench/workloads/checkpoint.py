"""What a checkpoint of 100 MB costs a run, and what CRC32C costs loading 1 GB."""
from frame import Bar, Workload


def workload(env):
    folder = env.work / "checkpoint_bench"
    folder.mkdir(exist_ok=True)
    return Workload(
        name="checkpoint",
        sentence="A run of 100 MB state: no save, synchronous and asynchronous saves interleaved; loading 1 GB against plainly reading it",
        variants={"redline": [env.build / "bench" / "checkpoint_bench", "2", folder]},
        bars=[Bar("async_over_sync", "redline", "redline", smaller_is_better=True, at_most=0.5, sentence="extra wall time per checkpoint"),
              Bar("overhead_percent", "redline", "redline", smaller_is_better=True, at_most=3.5, sentence="at the chosen interval"),
              Bar("load_over_plain_read", "redline", "redline", smaller_is_better=True, at_most=2.0, sentence="time, with CRC32C over without")],
    )
