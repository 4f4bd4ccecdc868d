"""One rank of a replay: recorded steps with timed waits in place of compute, and the real exchanges over Gloo (c10d, as redline's). Reads lines of JSON from
stdin ({"steps": N}), answers each with the seconds a step took. RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun sets them."""
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
steps = json.load(open(sys.argv[1]))
dist.init_process_group("gloo", timeout=timedelta(seconds=120))
sizes = [b[0] // 4 for b in steps[0]["buckets"]]
buffers = [torch.zeros(n) for n in sizes]
few = torch.zeros(40, dtype=torch.float64)
all_of_few = [torch.zeros_like(few) for _ in range(world)]


def until(moment):
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def one(step, exchanges):
    """`exchanges`: the same on all ranks, whichever steps they replay."""
    begin = time.monotonic()
    backward_begin = begin + step["own"] - step["backward"]
    until(backward_begin)
    works = []
    for buffer, (_, ready) in zip(buffers, step["buckets"]):
        until(backward_begin + ready)
        works.append(dist.all_reduce(buffer, async_op=True))
    for work in works:
        work.wait()
    for _ in range(exchanges):
        dist.all_gather(all_of_few, few)


dist.barrier()
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    for i in range(3):
        one(steps[(i + rank) % len(steps)], 1)
    dist.barrier()
    began, count = time.monotonic(), order["steps"]
    for i in range(count):  # from all over the record, so that few of them are like all of them
        first = i * len(steps) // count
        one(steps[(first + rank) % len(steps)], steps[first % len(steps)]["exchanges"])
    seconds = (time.monotonic() - began) / count
    print(json.dumps({"step_seconds": seconds}), flush=True)
dist.destroy_process_group()
