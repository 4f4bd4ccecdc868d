// Backward counts twice the forward (inputs and weights), except for the stem, whose input needs no gradient.
#include "models/speech_ssl/work_estimate.h"

#include <cmath>

namespace redline::models::speech {

double clip_flops(const ModelOptions& o, double seconds) {
  const EncoderOptions& e = o.encoder;
  const auto hop = static_cast<double>(o.preprocessor.hop_samples());
  const double channels = static_cast<double>(e.channels()), d = static_cast<double>(e.d_model);
  double time = seconds * static_cast<double>(o.sample_rate) / hop,
         width = static_cast<double>(o.preprocessor.features);
  time /= 2.0;
  width /= 2.0;
  double trained_twice = time * width * channels * 9.0;  // the stem
  double trained = 0.0;
  for (int64_t stage = 1; stage < e.num_stages(); ++stage) {
    time /= 2.0;
    width /= 2.0;
    trained += time * width * channels * (9.0 + channels);
  }
  trained += time * channels * width * d;
  const double hidden = d * static_cast<double>(e.ff_expansion_factor);
  const double rows = 4.0 * d * hidden + 4.0 * d * d + 3.0 * d * d + static_cast<double>(e.conv_kernel_size) * d;
  const double attention =
      4.0 * time * d + 2.0 * d * d;  // scores, positions (twice as many), values; projected positions
  trained += static_cast<double>(e.n_layers) * time * (rows + attention);
  const double share = o.masking.allow_overlap
                           ? 1.0 - std::pow(1.0 - o.masking.mask_prob, static_cast<double>(o.masking.block_size))
                           : o.masking.mask_prob;
  trained += share * time * d * static_cast<double>(o.num_classes * o.num_books);
  const double tokens =
      time *
      (static_cast<double>(o.quantizer.feat_in * o.quantizer.combine_time_steps * o.quantizer.code_dim) +
       static_cast<double>(o.quantizer.code_dim * o.num_classes)) *
      static_cast<double>(o.num_books);
  return 2.0 * (2.0 * trained_twice + 3.0 * trained + tokens);
}

}  // namespace redline::models::speech
