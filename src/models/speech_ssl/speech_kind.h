// Audio as NEST wants it: a noise clip beside every clip, and part of it overlaid with that or with other speakers.
#pragma once

#include <memory>

#include "data/kinds.h"

namespace redline::models::speech {

// Adds to audio what the batch asks for: "noise" and "noisy_audio" (noise_manifest, batch_augmentor).
std::shared_ptr<const data::Kind> noisy_speech_kind();

}  // namespace redline::models::speech
