#include "models/register.h"

namespace redline::models {

void register_all(task::Registry& registry) { (void)registry; }

}  // namespace redline::models
