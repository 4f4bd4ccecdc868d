// The model and the batch of the speech step benches: NeMo's small NEST, clips of three sines and white noise.
#pragma once

#include <torch/torch.h>

#include <cmath>

#include "models/speech_ssl/options.h"
#include "task/batch.h"

namespace redline::bench {

inline models::speech::ModelOptions speech_peer_options(bool fused) {
  models::speech::ModelOptions o;
  o.num_classes = o.quantizer.num_classes = 1024;
  o.preprocessor.features = 80;
  o.preprocessor.window_size = 0.025;
  o.preprocessor.n_fft = 512;
  o.masking.block_size = 40;
  o.masking.mask_prob = 0.01;
  o.masking.allow_overlap = true;
  o.encoder.n_layers = 4;
  o.encoder.d_model = 176;
  o.encoder.subsampling_conv_channels = 256;
  o.encoder.conv_kernel_size = 9;
  o.encoder.dropout_emb = 0.0;
  o.encoder.dropout_att = 0.1;
  o.decoder.use_bias = true;
  o.fused_kernels = fused;
  return o;
}

// Three sines and white noise per clip.
inline torch::Tensor make_audio(int64_t batch, int64_t samples) {
  const torch::Tensor t = torch::arange(samples, torch::kFloat32) / 16000.0;
  torch::Tensor audio = 0.02 * torch::randn({batch, samples});
  for (int64_t b = 0; b < batch; ++b)
    for (int i = 0; i < 3; ++i)
      audio[b] += 0.1 * torch::sin(2.0 * M_PI * (80.0 + 2920.0 * torch::rand({}).item<double>()) * t);
  return audio;
}

inline task::Batch speech_batch(int64_t batch_size, int64_t samples) {
  task::Batch batch;
  for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
  batch.tensors["audio"] = make_audio(batch_size, samples);
  batch.tensors["noisy_audio"] = batch.at("audio") + 0.3 * make_audio(batch_size, samples);
  batch.tensors["audio_lengths"] = batch.tensors["noisy_audio_lengths"] =
      torch::full({batch_size}, samples, torch::kInt64);
  return batch;
}

}  // namespace redline::bench
