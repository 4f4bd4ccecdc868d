"""The PyTorch peer end to end: lift-splat-shoot's loop (Adam, gradient norm of 5, weighted BCE) over peer_data's DataLoader with peer_model's network.

    peer_train.py small|swin_t FOLDER WORKERS BATCH STEPS WARM_UP: prints samples per second after the warm-up as JSON."""
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_data import Scenes, loader  # noqa: E402
from peer_model import LiftSplat  # noqa: E402
from peer_step import SIZES  # noqa: E402

size, folder, workers, batch, steps, warm_up = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
torch.set_num_threads(2)
torch.manual_seed(0)
net = SIZES[size]
resize = (0.193, 0.225) if size == "swin_t" else (0.193 * 192 / 352, 0.225 * 192 / 352)
data = Scenes(folder, *net["size"], tuple(net["xbound"]), resize=resize)
model = LiftSplat(**{**net, "drop_path": 0.2 if size == "swin_t" else 0.0}).train()  # as the recipe
optimiser = torch.optim.AdamW(model.parameters(), 2e-4, weight_decay=0.01)
weight = torch.tensor([2.13])
done, begin, samples = 0, None, 0
batches = loader(data, workers, batch)
while done < steps:
    for *inputs, truth in batches:
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(*inputs), truth, pos_weight=weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        loss.item()
        done += 1
        if done == warm_up:
            begin = time.perf_counter()
        elif done > warm_up:
            samples += len(truth)
        if done == steps:
            break
print(json.dumps({"samples_per_second": samples / (time.perf_counter() - begin), "steps": steps - warm_up}))
