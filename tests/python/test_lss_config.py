"""The fifth guide's configuration: mmcv's keys mean here what they mean there, its recipes and presets hold its numbers, its .py names are answered."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
BASE = ROOT / "recipes/lss_swin_nuscenes.yaml"


def redline(*words, code=0, cwd=ROOT):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def resolved(*words, recipe=BASE):
    return json.loads(redline("-q", "train", recipe, *words, "--print-config", "--json").stdout)


def at(config, path):
    for key in path.split("."):
        config = config[key]
    if isinstance(config, str):  # some numbers are kept as they were written
        try:
            return float(config)
        except ValueError:
            return config
    return config


SAVING = "exp_manager.checkpoint_callback_params"
KEYS = [
    # what mmcv's config says, and what it becomes
    (["data.samples_per_gpu=6"], {"model.train_ds.batch_size": 6, "model.train_ds.micro_batch_size": 6, "model.validation_ds.batch_size": 4}),
    (["model.train_ds.samples_per_gpu=3"], {"model.train_ds.batch_size": 3}),
    (["data.workers_per_gpu=1"], {"model.train_ds.num_workers": 1}),
    (["data.prefetch_factor=7"], {"model.train_ds.prefetch_factor": 7}),
    (["data.persistent_workers=false"], {"model.train_ds.persistent_workers": False}),
    (["data.pin_memory=false"], {"model.train_ds.pin_memory": False}),
    (["runner.max_iters=100"], {"trainer.max_iters": 100, "trainer.max_steps": 100}),
    (["runner.max_iters=101", "runner.accumulative_counts=2"], {"trainer.accumulate_grad_batches": 2, "trainer.max_iters": 101, "trainer.max_steps": 51}),
    (["accumulative_counts=3"], {"trainer.accumulate_grad_batches": 3, "trainer.max_steps": 66667}),
    (["optimizer_config.cumulative_iters=4"], {"trainer.accumulate_grad_batches": 4, "trainer.max_steps": 50000}),
    (["runner.type=IterBasedRunner"], {"trainer.check_val_every_n_epoch": None}),
    (["runner.type=EpochBasedRunner"], {"trainer.check_val_every_n_epoch": 1}),
    (["optimizer_config.grad_clip.max_norm=35", "optimizer_config.grad_clip.norm_type=2"], {"trainer.gradient_clip_val": 35, "trainer.gradient_clip_algorithm": "norm"}),
    (["optimizer_config.loss_scale=256.", "trainer.precision=auto", "trainer.precision_strict=true"], {"trainer.amp.loss_scale": 256.0, "trainer.precision": "16-mixed"}),
    (["fp16.loss_scale=512.", "trainer.precision=auto", "trainer.precision_strict=true"], {"trainer.amp.loss_scale": 512.0, "trainer.precision": "16-mixed"}),
    (["fp16.loss_scale=dynamic", "trainer.precision=auto", "trainer.precision_strict=true"], {"trainer.amp.loss_scale": "dynamic", "trainer.precision": "16-mixed"}),
    (["optimizer_config.type=GradientCumulativeFp16OptimizerHook", "optimizer_config.cumulative_iters=2", "trainer.precision_strict=true"],
     {"trainer.precision": "16-mixed", "trainer.accumulate_grad_batches": 2}),
    (["optimizer_config.type=OptimizerHook"], {"trainer.precision": "32-true"}),
    (["evaluation.interval=40000"], {"trainer.val_check_interval": 40000, "trainer.check_val_every_n_epoch": None}),
    (["checkpoint_config.interval=16000", "checkpoint_config.max_keep_ckpts=3", "checkpoint_config.by_epoch=false"],
     {f"{SAVING}.every_n_micro_iterations": 16000, f"{SAVING}.max_keep_ckpts": 3}),
    (["lr_config.policy=poly", "lr_config.power=0.9", "lr_config.min_lr=1e-5", "lr_config.warmup=linear", "lr_config.warmup_iters=1500", "lr_config.warmup_ratio=1e-6",
      "lr_config.by_epoch=false"],
     {"model.optim.sched.name": "poly", "model.optim.sched.power": 0.9, "model.optim.sched.min_lr": 1e-5, "model.optim.sched.warmup_steps": 1500,
      "model.optim.sched.warmup_start_factor": 1e-6}),
    (["log_config.interval=20"], {"trainer.log_every_n_steps": 20}),
    (["optimizer.type=AdamW", "optimizer.lr=6e-5", "optimizer.weight_decay=0.02", "optimizer.betas=[0.8,0.99]"],
     {"model.optim.name": "adamw", "model.optim.lr": 6e-5, "model.optim.weight_decay": 0.02, "model.optim.betas": [0.8, 0.99]}),
    (["optimizer.paramwise_cfg.custom_keys.relative_position_bias_table.decay_mult=0."],
     {"model.optim.custom_keys.relative_position_bias_table.decay_mult": 0.0}),
    (["load_from=/data/swin.safetensors"], {"load_from": "/data/swin.safetensors"}),
    (["resume_from=runs/before"], {"exp_manager.resume": "runs/before"}),
    (["--work-dir", "runs/here"], {"exp_manager.run_dir": "runs/here"}),
    (["work_dir=runs/here"], {"exp_manager.run_dir": "runs/here"}),
    (["--gpu-ids", "0,1"], {"trainer.gpu_ids": "0,1"}),
    (["--options", "runner.max_iters=7", "log_config.interval=3"], {"trainer.max_steps": 7, "trainer.log_every_n_steps": 3}),
    (["--cfg-options", "runner.max_iters=8"], {"trainer.max_steps": 8}),
    (["seed=5", "cudnn_benchmark=true"], {"seed": 5, "trainer.benchmark": True}),
    # keys without an effect of their own are taken with the value that is true here
    (["evaluation.metric=mIoU", "evaluation.pre_eval=true", "evaluation.efficient_test=true", "evaluation.by_epoch=false", "checkpoint_config.save_optimizer=true",
      "log_config.hooks=[]", "workflow=[]", "dist_params.backend=nccl"], {"trainer.val_check_interval": 20000}),
    # the earlier of two ends counts, whichever is written last
    (["trainer.max_steps=10"], {"trainer.max_steps": 10}),
    (["trainer.max_steps=300000"], {"trainer.max_steps": 200000}),
]


@pytest.mark.parametrize("words, values", KEYS, ids=[" ".join(words)[:60] for words, _ in KEYS])
def test_mmcvs_keys(words, values):
    config = resolved(*words)
    assert {path: at(config, path) for path in values} == values


@pytest.mark.parametrize("words, expected", [
    (["evaluation.metric=mDice"], "only understood as mIoU"),
    (["checkpoint_config.save_optimizer=false"], "checkpoint_config.save_optimizer"),
    (["runner.type=OtherRunner"], "IterBasedRunner, EpochBasedRunner"),
    (["optimizer_config.type=OtherHook"], "Fp16OptimizerHook"),
    (["optimizer_config.grad_clip.norm_type=1"], "Euclidean"),
    (["fp16.loss_scale=much"], "dynamic"),
    (["evaluation.intervall=3"], "interval"),
])
def test_other_values_are_refused_with_words(words, expected):
    assert expected in redline("train", BASE, *words, "--print-config", code=2).stderr


def test_a_guides_config_as_a_file(tmp_path):
    (tmp_path / "job.yaml").write_text(f"""base: {BASE}
data: {{samples_per_gpu: 6, workers_per_gpu: 12, pin_memory: true, persistent_workers: true, prefetch_factor: 4}}
runner: {{type: IterBasedRunner, max_iters: 200000, accumulative_counts: 2}}
optimizer: {{type: AdamW, lr: 3.0e-4, betas: [0.9, 0.999], weight_decay: 0.01}}
optimizer_config: {{type: Fp16OptimizerHook, loss_scale: 512.0, grad_clip: {{max_norm: 5, norm_type: 2}}}}
lr_config: {{policy: poly, warmup: linear, warmup_iters: 1500, warmup_ratio: 1.0e-6, power: 1.0, min_lr: 0.0, by_epoch: false}}
evaluation: {{interval: 40000, metric: mIoU, efficient_test: true, pre_eval: true}}
checkpoint_config: {{by_epoch: false, interval: 16000, max_keep_ckpts: 2}}
log_config: {{interval: 50, hooks: [{{type: TextLoggerHook, by_epoch: false}}, {{type: TensorboardLoggerHook}}]}}
workflow: [[train, 1]]
dist_params: {{backend: nccl}}
load_from: null
resume_from: null
""")
    config = resolved("model.optim.scale_lr=none", recipe=tmp_path / "job.yaml")
    expected = {"model.train_ds.batch_size": 6, "trainer.max_iters": 200000, "trainer.max_steps": 100000, "trainer.accumulate_grad_batches": 2, "trainer.amp.loss_scale": 512.0,
                "model.optim.lr": 3e-4, "model.optim.sched.warmup_steps": 1500, "trainer.val_check_interval": 40000, f"{SAVING}.every_n_micro_iterations": 16000,
                f"{SAVING}.max_keep_ckpts": 2, "trainer.gradient_clip_val": 5, "load_from": None, "exp_manager.resume": None}
    assert {path: at(config, path) for path in expected} == expected


RECIPES = {  # batch, precision asked for, workers, prefetch, validation, rate that training uses
    "": (4, "32-true", 8, 2, 20000, 2e-4),
    "_optimized": (6, "16-mixed", 12, 4, 40000, 3e-4),
    "_speed": (4, "16-mixed", 16, 8, 40000, 2e-4),
    "_high_memory": (8, "16-mixed", 8, 2, 40000, 4e-4),
}
TINY = ["model.grid.xbound=[-16,16,4]", "model.grid.ybound=[-16,16,4]", "model.grid.dbound=[4,16,4]", "model.image_size=[32,64]", "model.cam_channels=8", "model.neck_channels=16",
        "model.backbone.embed_dim=8", "model.backbone.num_heads=[1,1,2,2]", "model.backbone.depths=[1,1,1,1]", "model.nuscenes.resize_lim=[0.4,0.5]",
        "model.train_ds.synth.num=8", "model.train_ds.synth.num_validation=2", "model.train_ds.synth.camera_width=160", "model.train_ds.synth.camera_height=90",
        "model.validation_ds.synth.num=8", "model.validation_ds.synth.num_validation=2", "model.validation_ds.synth.camera_width=160",
        "model.validation_ds.synth.camera_height=90", "model.train_ds.num_workers=0", "model.validation_ds.num_workers=0"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_hold_the_guides_numbers(recipe, tmp_path):
    batch, precision, workers, prefetch, interval, rate = RECIPES[recipe]
    file = ROOT / f"recipes/lss_swin_nuscenes{recipe}.yaml"
    config = resolved("trainer.precision_strict=true", recipe=file)
    expected = {"model.train_ds.batch_size": batch, "trainer.precision": precision, "model.train_ds.num_workers": workers, "model.train_ds.prefetch_factor": prefetch,
                "trainer.val_check_interval": interval, "trainer.max_iters": 200000, "model.train_ds.persistent_workers": True,
                "trainer.amp.loss_scale": None if precision == "32-true" else 512.0, "model.pos_weight": 2.13, "model.backbone.depths": [2, 2, 6, 2]}
    assert {path: at(config, path) for path in expected} == expected
    run = tmp_path / "run"
    redline("train", file, *TINY, "trainer.max_steps=1", "trainer.log_every_n_steps=1", "--run-dir", run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = [row["value"] for row in rows if row.get("name") == "learning_rate"]
    assert rates == [pytest.approx(rate, rel=1e-12)]


def test_presets_are_the_recipes(tmp_path):
    for preset, recipe in (("balanced", "_optimized"), ("speed", "_speed"), ("memory", "_high_memory")):
        one, two = resolved("--preset", preset), resolved(recipe=ROOT / f"recipes/lss_swin_nuscenes{recipe}.yaml")
        one.pop("name"), two.pop("name")
        assert one == two, preset
    debug = resolved("--preset", "debug")
    expected = {"model.train_ds.batch_size": 1, "model.train_ds.num_workers": 0, "trainer.precision": "32-true", "trainer.max_steps": 10}
    assert {path: at(debug, path) for path in expected} == expected


@pytest.mark.parametrize("name", ["lss_swin_nuscenes", "lss_swin_nuscenes_optimized", "lss_swin_nuscenes_speed", "lss_swin_nuscenes_high_memory"])
def test_the_guides_python_configs_are_answered_with_the_recipe(name):
    said = redline("train", f"configs/baseline/{name}.py", "--work-dir", "runs/x", "--gpu-ids", "0", "--options", "runner.max_iters=100", code=2).stderr
    assert f"recipes/{name}.yaml" in said and (ROOT / f"recipes/{name}.yaml").exists()


def test_gpus_are_said_to_have_no_effect_on_a_cpu():
    said = redline("train", BASE, "--gpu-ids", "0", "--options", "runner.max_iters=100", "--print-config")
    assert "--gpu-ids has no effect: this run is on the CPU." in said.stdout + said.stderr
