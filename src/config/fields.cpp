#include "config/fields.h"

namespace redline::config {

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
