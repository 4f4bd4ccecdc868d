"""Small jobs of the four tasks, healthy: enough work in a batch, samples of like length together, cadences that are rare, as many threads as cores."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 5

# A run is ended by its time. Validation is off: what is asked about is training.
COMMON = f"""trainer: {{max_steps: 1000000, max_epochs: -1, max_time: {SECONDS}s, val_check_interval: 1000000, limit_val_batches: 0, num_sanity_val_steps: 0,
  log_every_n_steps: 50, enable_progress_bar: false, precision: 32-true, accumulate_grad_batches: 1}}
exp_manager: {{create_tensorboard_logger: false, ema: {{enable: false}}, checkpoint_callback_params: {{every_n_train_steps: 1000000}}}}
"""

SPEECH = """name: outside-speech
base: {root}/recipes/nest_fast-conformer_small.yaml
model:
  num_classes: 256
  longest_clip: 5.0
  train_ds: {{synth: {{kind: speech, num: 1200, seed: 1, median_seconds: 2.0, min_seconds: 0.8, max_seconds: 5.0}}, batch_size: 64, num_workers: 2, max_duration: 5.0, num_buckets: 10}}
  validation_ds: {{synth: {{kind: speech, num: 1200, seed: 1, median_seconds: 2.0, min_seconds: 0.8, max_seconds: 5.0}}, max_duration: 5.0}}
  encoder: {{n_layers: 2, d_model: 96, n_heads: 4, subsampling_conv_channels: 64}}
"""

SEQUENCES = """name: outside-sequences
base: {root}/recipes/sequence_vae.yaml
model:
  d_model: 128
  n_heads: 4
  d_ff: 512
  n_encoder_layers: 2
  n_decoder_layers: 2
  max_sequence_length: 160
  monitor: {{update_frequency: 1000000, plot_frequency: 1000000}}
  train_ds: {{synth: {{kind: sequences, num: 20000, seed: 1, vocab_size: 1000, median_length: 60, max_length: 160}}, batch_size: 64, num_workers: 1, pin_memory: false}}
  validation_ds: {{synth: {{kind: sequences, num: 20000, seed: 1, vocab_size: 1000, median_length: 60, max_length: 160}}}}
"""

PICTURES = """name: outside-pictures
base: {root}/recipes/convnext_small.yaml
model:
  train_ds: {{batch_size: 64, num_workers: 1}}
"""

SCENES = """name: outside-scenes
base: {root}/recipes/lss_small.yaml
model:
  image_size: [32, 128]
  grid: {{xbound: [-48.0, 48.0, 3.0], ybound: [-48.0, 48.0, 3.0], dbound: [4.0, 44.0, 4.0]}}
  train_ds: {{batch_size: 8, num_workers: 2}}
  monitor: {{pictures_every_n_steps: 1000000}}
"""

# What would show that a job is not healthy: a change that lifts one limit, for the tasks that may have it, and the verdicts that speak of that limit. A
# control is one only where none of them gains as much as is worth naming; and a verdict about a control is right where its own change does.
LIFTED = {
    "twice the batch": ({"speech": ("model.train_ds.batch_size=128",), "sequences": ("model.train_ds.batch_size=128",), "pictures": ("model.train_ds.batch_size=128",),
                         "scenes": ("model.train_ds.batch_size=16",)}, ("small-batch-bound", "memory-bound")),
    "twice the buckets": ({"speech": ("model.train_ds.num_buckets=20",)}, ("padding-bound",)),
    "kept samples": ({task: ("model.train_ds.cache=memory",) for task in ("speech", "pictures", "scenes")}, ("data-bound", "slow disk")),
    "one worker": ({task: ("model.train_ds.num_workers=1",) for task in ("speech", "scenes")}, ("oversubscribed",)),
}

TASKS = {"speech": SPEECH, "sequences": SEQUENCES, "pictures": PICTURES, "scenes": SCENES}


def write_job(folder, task):
    """The recipe file of a task's healthy job."""
    path = pathlib.Path(folder) / f"{task}.yaml"
    text = TASKS[task].format(root=ROOT) + COMMON
    if task == "scenes":
        text = text.replace("max_steps: 1000000, max_epochs: -1,", "max_iters: 1000000,")
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
