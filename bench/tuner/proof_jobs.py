"""Small jobs that certificates and times to a loss are tried on: a run of each takes about a second, learns, and has rates near their best,
so that eight times the rate, no dropout or half the data are harm that can be seen."""
SPEECH = """
base: {root}/recipes/nest_fast-conformer_small.yaml
name: proof-speech
model:
  num_classes: 32
  longest_clip: 2.0
  train_ds: {{batch_size: 4, num_workers: 0, use_bucketing: false, num_buckets: 1, cache: memory, max_duration: 2.0,
             synth: {{kind: speech, num: 96, seed: 1, median_seconds: 1.4, min_seconds: 1.1, max_seconds: 2.0}}}}
  validation_ds: {{num_workers: 0, batch_size: 16, max_duration: 2.0, cache: memory,
             synth: {{kind: speech, num: 96, seed: 1, median_seconds: 1.4, min_seconds: 1.1, max_seconds: 2.0}}}}
  encoder: {{n_layers: 1, d_model: 32, n_heads: 2, dropout: 0.3, dropout_pre_encoder: 0.3, dropout_att: 0.3}}
  optim: {{lr: 1.0, sched: {{warmup_steps: 20}}}}
trainer: {{max_steps: 160, accumulate_grad_batches: 1, precision: 32-true, intra_op_threads: 1, val_check_interval: 1000000, log_every_n_steps: 100}}
"""
VAE = """
base: {root}/recipes/sequence_vae.yaml
name: proof-vae
model:
  vocab_size: 64
  d_model: 48
  n_heads: 2
  d_ff: 96
  n_encoder_layers: 1
  n_decoder_layers: 1
  latent_dim: 8
  dropout: 0.3
  max_sequence_length: 32
  kl_schedule: {{kind: linear, start: 0.0, warm_up_steps: 60}}
  monitor: {{disable_metrics_monitoring: true}}
  train_ds: {{batch_size: 8, num_workers: 0, pin_memory: false, persistent_workers: false,
             synth: {{kind: sequences, num: 192, seed: 1, vocab_size: 64, median_length: 16, max_length: 30}}}}
  validation_ds: {{num_workers: 0, batch_size: 64, synth: {{kind: sequences, num: 192, seed: 1, vocab_size: 64, median_length: 16, max_length: 30}}}}
  optim: {{lr: 3.0e-3, sched: {{name: constant, warmup_steps: 10}}}}
trainer: {{max_steps: 240, max_epochs: -1, accumulate_grad_batches: 1, precision: 32-true, intra_op_threads: 1, val_check_interval: 1.0, log_every_n_steps: 100}}
"""
RECIPES = {"speech": SPEECH, "vae": VAE}
BATCH = {"speech": 4, "vae": 8}
RATE = {"speech": 1.0, "vae": 3.0e-3}


def larger_batch(task, times):
    rows = BATCH[task] * times
    return f"model.train_ds.batch_size={rows} model.train_ds.micro_batch_size={rows}"
