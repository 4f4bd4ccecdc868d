"""The tuner's reference jobs and their grids: small enough that an exhaustive grid takes minutes."""
import itertools

SPEECH = """
base: {root}/recipes/nest_fast-conformer_small.yaml
name: tuner-speech
model:
  train_ds: {{batch_size: 2, num_workers: 0, use_bucketing: false, num_buckets: 1,
             synth: {{kind: speech, num: 600, seed: 1, median_seconds: 2.5, min_seconds: 1.2, max_seconds: 8.0}}}}
  validation_ds: {{num_workers: 0, synth: {{kind: speech, num: 600, seed: 1, median_seconds: 2.5, min_seconds: 1.2, max_seconds: 8.0}}}}
  encoder: {{n_layers: 2, d_model: 96}}
  longest_clip: 8.0
trainer: {{accumulate_grad_batches: 8, max_steps: 2000, val_check_interval: 4000, limit_val_batches: 2, log_every_n_steps: 10}}
"""
VAE = """
base: {root}/recipes/sequence_vae.yaml
name: tuner-vae
model:
  d_model: 64
  n_heads: 4
  d_ff: 256
  n_encoder_layers: 2
  n_decoder_layers: 2
  max_sequence_length: 256
  train_ds: {{batch_size: 2, num_workers: 0, use_bucketing: false, pin_memory: false}}
  validation_ds: {{num_workers: 0}}
trainer: {{accumulate_grad_batches: 8, precision: 32-true, max_epochs: 10}}
"""


def settings(job, bf16_share):
    """Every point of the grid: micro-batch x workers x precision x buckets x threads at an effective batch of 16.

    `bf16_share`: what bf16 matrix products reach of fp32's rate here. Where that is below a tenth (no units for it), every bf16 point loses
    tens of times over; four of them show that, and a grid of them all would flatter the tuner's share of its time.
    """
    points = list(itertools.product((2, 4, 8, 16), (0, 1, 2), ("32-true", "bf16-mixed"), (False, True), (1, 2)))
    if bf16_share < 0.1:
        corners = itertools.product((2, 16), (0,), ("bf16-mixed",), (False, True), (2,))
        points = [point for point in points if point[2] == "32-true"] + list(corners)
    return [setting(job, *point) for point in points]


def setting(job, rows, workers, precision, buckets, threads):
    point = {"model.train_ds.num_workers": workers, "trainer.precision": precision, "trainer.precision_strict": "true",
             "trainer.intra_op_threads": threads, "model.train_ds.micro_batch_size": rows}
    if job == "speech":  # batch statistics: the micro-batch is the batch
        point |= {"model.train_ds.batch_size": rows, "trainer.accumulate_grad_batches": 16 // rows, "trainer.val_check_interval": 4000 * 2 // rows}
    point["model.train_ds.use_bucketing"] = str(buckets).lower()
    if buckets:
        point["model.train_ds.num_buckets"] = 8
    return " ".join(f"{key}={value}" for key, value in point.items())


RECIPES = {"speech": SPEECH, "vae": VAE}
