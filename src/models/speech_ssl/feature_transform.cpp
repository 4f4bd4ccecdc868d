#include "models/speech_ssl/feature_transform.h"

#include "core/error.h"
#include "core/strings.h"
#include "models/speech_ssl/mel_kernel.h"
#include "models/speech_ssl/preprocessor.h"

namespace redline::models::speech {

namespace {

class FeatureTransform : public data::SampleTransform {
 public:
  explicit FeatureTransform(const PreprocessorOptions& options)
      : options_(options), preprocessor_(options), kernel_(preprocessor_->make_kernel()) {}

  void apply(data::Sample& sample, const data::DrawKey&) const override {
    const data::Array* audio = sample.find("audio");
    if (audio == nullptr || audio->dtype() != data::Dtype::F32)
      throw DataError("a sample without float audio reached the mel features; cache_features needs an audio source.");
    const int64_t frames = preprocessor_->num_frames(audio->numel());
    data::Array features = data::Array::empty(data::Dtype::F32, {frames, options_.features});
    thread_local std::vector<float> scratch;
    kernel_.clip_features(audio->as<const float>(), frames, features.as<float>().data(), scratch);
    sample.set("clean_features", std::move(features));
  }

  std::string fingerprint() const override {
    const PreprocessorOptions& o = options_;
    std::vector<std::string> parts{"mel 1", o.window.value_or("hann"), o.log_zero_guard_type,
                                   o.mel_norm.value_or("none")};
    for (int64_t value : {o.sample_rate, o.window_samples(), o.hop_samples(), o.fft_samples(), o.features})
      parts.push_back(std::to_string(value));
    for (double value : {o.preemph.value_or(0.0), o.lowfreq, o.highfreq.value_or(0.0), o.guard(), o.log ? 1.0 : 0.0,
                         o.count_last_frame ? 1.0 : 0.0})
      parts.push_back(format_double(value));
    return join(parts, " ");
  }
  bool random() const override { return false; }

 private:
  PreprocessorOptions options_;
  Preprocessor preprocessor_;
  MelKernel kernel_;
};

}  // namespace

std::shared_ptr<data::SampleTransform> make_feature_transform(const PreprocessorOptions& options) {
  return std::make_shared<FeatureTransform>(options);
}

}  // namespace redline::models::speech
