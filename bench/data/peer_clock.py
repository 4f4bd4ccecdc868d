"""The loop every peer runs: time to the first batch from loader construction (imports excluded), then batches for a while."""
import json
import time


def run(make_loader, count, seconds):
    begin = time.perf_counter()
    loader = make_loader()
    first, samples, now = None, 0, begin
    while first is None or now - first < seconds:
        for batch in loader:
            now = time.perf_counter()
            if first is None:
                first = now
                continue
            samples += count(batch)
            if now - first >= seconds:
                break
    print(json.dumps({"samples_per_second": samples / (now - first), "first_batch_seconds": first - begin, "samples": samples}))
