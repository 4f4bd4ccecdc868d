"""Reading, resolving, dumping and hashing a config of 400 keys."""
import json
import subprocess

from frame import Bar, Workload


def workload(env):
    def whole():
        done = subprocess.run([env.build / "bench" / "config_bench", "--benchmark_filter=whole", "--benchmark_format=json"],
                              check=True, capture_output=True, text=True)
        return {"milliseconds": json.loads(done.stdout)["benchmarks"][0]["real_time"]}

    return Workload(
        name="config",
        sentence="A 400-key config from its tables and file to the dump and the hash",
        variants={"redline": whole},
        bars=[Bar("milliseconds", "redline", "redline", smaller_is_better=True, at_most=5.0, sentence="under 5 ms")],
        rounds=7,
    )
