"""Several ranks compute what one process computes at the same global batch: all four tasks, two and four ranks; and what PyTorch's own
DistributedDataParallel computes of the same weights and pictures."""
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from rank_jobs import SLOW, apart, free_port, launch, make_home, run, values, weights
from safetensors.numpy import load_file, save_file

STEPS = 50 if SLOW else 20
WHOLE_SET = ("val_active_units", "val_accuracy", "val_recall_at_1", "val_vehicle_iou", "val_miou")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("ranks"))


def name_of(x):
    return x if isinstance(x, str) else "+".join(w.split(".")[-1] for w in x) or "plain" if isinstance(x, list) else str(x)


SYNC = "trainer.sync_batchnorm=true"
UNUSED = "trainer.strategy.find_unused_parameters=true"
# Three samples a batch: uneven over two ranks, none for one of four.
UNEVEN = ["trainer.accumulate_grad_batches=2", "model.train_ds.batch_size=3", UNUSED]
BASELINE = [SYNC, "model.arch=baseline", "model.optim.name=sgd", "model.optim.lr=0.01"]
# Masks so rare that many a clip has none, and its piece no weight; some steps have nothing to learn from at all.
RARE_MASKS = [SYNC, "model.masking.mask_prob=0.002", "trainer.accumulate_grad_batches=3", "model.train_ds.batch_size=2"]


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.skipif(not SLOW, reason="REDLINE_SLOW=1 asks for it"))


CASES = [
    ("vae", 2, []),
    ("vae", 2, ["trainer.accumulate_grad_batches=3", "model.train_ds.batch_size=2"]),
    slow("vae", 2, ["trainer.strategy.static_graph=true", "trainer.accumulate_grad_batches=2"]),
    ("speech", 2, [SYNC]),
    ("speech", 2, RARE_MASKS),
    ("convnext", 2, ["trainer.strategy.bucket_cap_mb=0.02", "trainer.strategy.gradient_as_bucket_view=false"]),
    ("convnext", 2, ["model.train_ds.batch_size=3", "model.train_ds.micro_batch_size=1", UNUSED]),
    ("convnext", 2, BASELINE),
    slow("lss", 2, [SYNC]),
    slow("convnext", 4, []),
    slow("speech", 4, [SYNC]),
    ("lss", 4, [SYNC, "trainer.accumulate_grad_batches=2", "model.train_ds.batch_size=2"]),  # two ranks without a sample
    *[slow(job, 2, [SYNC, *UNEVEN]) for job in ("vae", "speech", "convnext", "lss")],
    ("vae", 4, [SYNC, *UNEVEN]),
    ("speech", 4, [SYNC, *UNEVEN]),
    slow("convnext", 4, [SYNC, *UNEVEN]),
    slow("lss", 4, [SYNC, *UNEVEN]),
    slow("convnext", 4, [*BASELINE, *UNEVEN]),
]
# One process against itself, summing in another order: how far rounding alone goes by a step.
ROUNDING = ["trainer.intra_op_threads=2", "trainer.intra_op_threads=3", "trainer.channels_last=false"]
GRADIENT = ["model.optim.name=sgd", "model.optim.momentum=0", "model.optim.weight_decay=0", "model.optim.sched=null", "trainer.gradient_clip_val=0", "trainer.max_steps=1",
            "trainer.limit_val_batches=0"]
RATE = 1e4


def gradient(home, folder, start, job, words):
    """Of the first step: what plain descent with a large rate moves the weights by."""
    for name, rate in (("still", 1e-30), ("moved", RATE)):
        start(f"{job}.yaml", f"--run-dir={folder}/{name}", *words, *GRADIENT, f"model.optim.lr={rate}")
    before, after = weights(folder / "still"), weights(folder / "moved")
    return {k: (before[k].astype(np.float64) - after[k]) / RATE for k in before if before[k].dtype == np.float32}


def gradients_apart(ours, theirs):
    """The largest difference of a tensor's gradient against its length. One that is only rounding (a bias before a BatchNorm has no gradient) counts against the
    longest."""
    assert set(ours) == set(theirs)
    longest = max(np.linalg.norm(v) for v in theirs.values())
    assert longest > 1e-4

    def length(v):
        return longest if np.linalg.norm(v) < 1e-5 * longest else max(np.linalg.norm(v), 1e-3 * longest)
    return max(np.linalg.norm(ours[k] - theirs[k]) / length(theirs[k]) for k in theirs)


def check_gradients(home, folder, job, ranks, words):
    """A ReLU of an element that is zero but for rounding lets a gradient through or not: then another seed is asked, and what is wrong is wrong for all of them."""
    for seed in (1, 2, 3):
        more = [*words, f"seed={seed}"]
        mine = gradient(home, folder / f"one{seed}", lambda *w: run(home, "train", *w), job, more)
        theirs = gradient(home, folder / f"many{seed}", lambda *w: launch(home, ranks, *w), job, more)
        far = gradients_apart(theirs, mine)
        if far < 1e-5:
            return
        assert job == "lss" and far < 1e-2, far
    raise AssertionError("gradients of three seeds are apart")


def losses(folder):
    return [value for _, value in sorted((k[1], v) for k, v in values(folder).items() if k[0] == "loss")]


def drift(a, b):
    """By step, how far two runs' losses have been apart until then, relative; and last, how far their validations were."""
    x, y = np.array(losses(a)), np.array(losses(b))
    return np.append(np.maximum.accumulate(np.abs(x - y) / np.maximum(np.abs(x), 1e-9)), apart(a, b, ["val_loss", "val_perplexity"]))


def check_curves(home, folder, job, ranks, words):
    """The same loop over seeds: after a ReLU has flipped, both go their own ways. Where rounding grows by itself from step to step, ranks are held against one process
    that only sums in another order."""
    found = []
    for seed in (1, 2, 3):
        one, many, more = folder / f"one{seed}", folder / f"many{seed}", [*words, f"seed={seed}"]
        run(home, "train", f"{job}.yaml", f"--run-dir={one}", *more)
        launch(home, ranks, f"{job}.yaml", f"--run-dir={many}", *more)
        far = drift(one, many)
        if far.max() < 1e-4:
            return one, many, True
        bound = np.full(len(far), 1e-4)
        for number, other in enumerate(ROUNDING):
            alike = folder / f"rounding{seed}{number}"
            run(home, "train", f"{job}.yaml", f"--run-dir={alike}", *more, other)
            bound = np.maximum(bound, 10 * drift(one, alike))
        if (far <= bound).all():
            return one, many, False
        found.append((far.tolist(), bound.tolist()))
    raise AssertionError(found)


@pytest.mark.parametrize("job,ranks,words", CASES, ids=name_of)
def test_ranks_are_one_process(home, tmp_path, job, ranks, words):
    steps = STEPS if job != "lss" or SLOW else 8
    rare = words is RARE_MASKS
    words = [f"trainer.max_steps={steps}", *words]
    one_run, many_run, close = check_curves(home, tmp_path, job, ranks, words)
    one, many = values(one_run), values(many_run)
    count = len(losses(one_run))
    assert set(one) == set(many) and (5 < count < steps if rare else count == steps), "steps without weight are left out"
    if ("grad_norm", 1) in one:
        check_gradients(home, tmp_path / "gradients", job, ranks, words)
    if close:
        whole = {k: v for k, v in one.items() if k[0] in WHOLE_SET}
        assert whole or job == "speech", "the task has a metric of the whole set"
        assert whole == pytest.approx({k: v for k, v in many.items() if k[0] in WHOLE_SET}, abs=1e-6)
    assert (many_run / "ranks/1/steps.bin").exists() and not (many_run / "ranks/1/checkpoints").exists()


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_validation_is_of_the_whole_set(home, tmp_path, ranks):
    """25 pictures in batches of 8, the last of one: some ranks have none of it. Weights that did not move are equal to the last bit, so what differed would be
    the set that is looked at. Of 13 kept samples too: the same ones."""
    words = ["convnext.yaml", "trainer.max_steps=2", "trainer.val_check_interval=2", "model.optim.name=sgd", "model.optim.lr=1e-30", "model.optim.sched.min_lr=0",
             "model.monitor.recall_at=[1,5]", "model.validation_ds.synth.num_validation=25"]
    found = {}
    for kept in (25, 13):
        more = [*words, f"model.monitor.max_samples={kept}"]
        run(home, "train", *more, f"--run-dir={tmp_path}/one{kept}")
        launch(home, ranks, *more, f"--run-dir={tmp_path}/many{kept}")
        one, many = ({k: v for k, v in values(tmp_path / f"{who}{kept}").items() if k[0].startswith("val_")} for who in ("one", "many"))
        assert {"val_recall_at_1", "val_recall_at_5", "val_map_at_r", "val_silhouette", "val_accuracy"} <= {k[0] for k in one}
        assert one == pytest.approx(many, rel=1e-5, abs=1e-7)
        found[kept] = one
    assert found[25] != pytest.approx(found[13], rel=1e-2), "the control: of other samples it is another number"


def test_a_wrong_seed_is_seen(home, tmp_path):
    """The control of the above."""
    run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/one", "seed=5")
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/two")
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) > 1e-3


# The model of the convnext job in plain PyTorch, with timm's names: what DistributedDataParallel is given.
DDP = """
import sys
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image
from safetensors.numpy import load_file, save_file

weights_file, pictures, port, rank, out = sys.argv[1], sys.argv[2].split(","), sys.argv[3], int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


class Net(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.names = {k: k.replace(".", "__") for k in tensors}
        for key, name in self.names.items():
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(tensors[key].copy())))

    def p(self, key):
        return getattr(self, self.names[key]) if key in self.names else None

    def norm(self, x, key):  # over channels, last
        return F.layer_norm(x, x.shape[-1:], self.p(key + ".weight"), self.p(key + ".bias"), 1e-6)

    def conv(self, x, key, **kwargs):  # channels last in and out
        return F.conv2d(x.permute(0, 3, 1, 2), self.p(key + ".weight"), self.p(key + ".bias"), **kwargs).permute(0, 2, 3, 1)

    def linear(self, x, key):
        return F.linear(x, self.p(key + ".weight"), self.p(key + ".bias"))

    def forward(self, images):
        x = self.norm(self.conv(images.permute(0, 2, 3, 1), "stem.0", stride=4), "stem.1")
        for stage in range(4):
            if stage > 0:
                x = self.conv(self.norm(x, f"stages.{stage}.downsample.0"), f"stages.{stage}.downsample.1", stride=2)
            b = f"stages.{stage}.blocks.0"
            y = self.norm(self.conv(x, b + ".conv_dw", padding=3, groups=x.shape[-1]), b + ".norm")
            y = self.linear(F.gelu(self.linear(y, b + ".mlp.fc1")), b + ".mlp.fc2")
            x = x + y * self.p(b + ".gamma")
        x = self.norm(x.mean((1, 2)), "head.norm")
        return self.linear(x, "head.fc")


net = Net(load_file(weights_file))
ddp = torch.nn.parallel.DistributedDataParallel(net)
mine = pictures[rank::2]
pixels = np.stack([np.asarray(Image.open(p), np.float32) / 255 for p in mine])
images = torch.from_numpy((pixels - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])).permute(0, 3, 1, 2).contiguous()
labels = torch.tensor([int(p.split("/")[-2][1:]) for p in mine])
F.cross_entropy(ddp(images), labels).backward()
if rank == 0:
    save_file({k: net.p(k).grad.numpy() for k in net.names}, out)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Eight pictures of two classes, one batch of them; noise, so that no two samples are alike."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(3)
    for i in range(8):
        path = folder / f"c{i % 2}" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return folder


def test_pytorchs_ddp_gives_the_same_gradients(home, tmp_path, pictures):
    """One step of plain gradient descent with a large rate: what the weights moved by is the gradient, to the last bits but a few."""
    rate = 1e4
    (home / "judged.yaml").write_text("base: convnext.yaml\nmodel:\n  num_classes: 2\n"
                                      f"  train_ds: {{synth: null, path: {pictures}, image_crop: none, image_flip: 0.0, batch_size: 8, num_workers: 1}}\n"
                                      f"  validation_ds: {{synth: null, path: {pictures}, image_crop: none, batch_size: 8}}\n"
                                      "  optim: {name: sgd, momentum: 0.0, weight_decay: 0.0, sched: null}\n"
                                      "trainer: {max_steps: 1, gradient_clip_val: 0.0, limit_val_batches: 0}\n")
    launch(home, 2, "judged.yaml", f"--run-dir={tmp_path}/still", "model.optim.lr=1e-30")
    launch(home, 2, "judged.yaml", f"--run-dir={tmp_path}/moved", f"model.optim.lr={rate}")
    before, after = weights(tmp_path / "still"), weights(tmp_path / "moved")
    save_file(before, tmp_path / "weights.safetensors")
    port, files = free_port(), ",".join(str(p) for p in sorted(pictures.glob("c*/*.png")))
    ranks = [subprocess.Popen([sys.executable, "-c", DDP, str(tmp_path / "weights.safetensors"), files, str(port), str(r), str(tmp_path / "ddp.safetensors")],
                              env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}) for r in range(2)]
    assert [p.wait(120) for p in ranks] == [0, 0]
    theirs = load_file(tmp_path / "ddp.safetensors")
    assert set(theirs) == set(before) and len(theirs) > 30
    ours = {k: (before[k].astype(np.float64) - after[k]) / rate for k in theirs}
    largest = max(np.abs(v).max() for v in theirs.values())
    assert largest > 1e-3
    for key in theirs:
        scale = max(np.abs(theirs[key]).max(), 1e-3 * largest)
        assert np.abs(ours[key] - theirs[key]).max() / scale < 1e-5, key
    # The control: a gradient of half the batch is far from it.
    assert max(np.abs(ours[k] - 0.5 * theirs[k]).max() for k in theirs) > 0.1 * largest
