#include "config/fields.h"

namespace redline::config {

const char* counts_name(Counts counts) {
  static constexpr const char* kNames[] = {"", "steps", "batches", "samples", "epochs", "s"};
  return kNames[static_cast<size_t>(counts)];
}

const char* effect_name(Effect effect) {
  switch (effect) {
    case Effect::Nothing:
      return "nothing";
    case Effect::Numerics:
      return "numerics";
    case Effect::Order:
      return "order";
    case Effect::Optimisation:
      return "optimisation";
    case Effect::Model:
      return "model";
  }
  return "nothing";
}

}  // namespace redline::config
