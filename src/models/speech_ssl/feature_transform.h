// Mel features of the clean signal, made by data workers and kept in the feature cache (`cache_features`). The clean
// signal is the same in every epoch when dither is off, so its features are made once; the noisy one changes with every
// draw and stays with the task.
#pragma once

#include <memory>

#include "data/transform.h"
#include "models/speech_ssl/options.h"

namespace redline::models::speech {

// "audio" F32 [L] -> also "clean_features" F32 [frames, features].
std::shared_ptr<data::SampleTransform> make_feature_transform(const PreprocessorOptions& options);

}  // namespace redline::models::speech
