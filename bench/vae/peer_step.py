"""Forward + backward of the PyTorch peer at the shapes of bench/vae_step_bench.cpp. Arguments: MEDIAN BATCH DROPOUT STEPS THREADS [MODE].

MODE is eager (default) or compile. Padding is to each batch's longest sequence.
"""
import json
import math
import sys
import time

import torch

from peer_model import SequenceVae


def lengths_for(median, count):
    out = []
    for i in range(count):
        u = ((i * 37) % count + 0.5) / count
        z = math.log(u / (1 - u)) / 1.702
        out.append(min(998, max(4, int(median * math.exp(0.6 * z)))) + 2)
    return out


def main(median=90, batch=4, dropout=0.1, steps=16, threads=2, mode="eager"):
    median, batch, dropout, steps, threads = float(median), int(batch), float(dropout), int(steps), int(threads)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = SequenceVae(dropout=dropout)
    run = torch.compile(model, dynamic=True) if mode == "compile" else model
    lengths = lengths_for(median, batch * steps)
    batches = []
    for i in range(steps):
        part = lengths[i * batch:(i + 1) * batch]
        batches.append((torch.randint(3, 1000, (batch, max(part))), torch.tensor(part)))
    for timed in (False, True):
        begin = time.perf_counter()
        for tokens, n in batches:
            run(tokens, n)["loss"].backward()
        seconds = time.perf_counter() - begin
    print(json.dumps({"sequences_per_second": batch * steps / seconds, "ms_per_batch": 1e3 * seconds / steps,
                      "tokens_per_batch": sum(lengths) / steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
