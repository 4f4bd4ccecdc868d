#include "models/register.h"

#include "models/speech_ssl/speech_ssl_task.h"

namespace redline::models {

void register_all(task::Registry& registry) {
  registry.add(speech::speech_ssl_entry());
}

}  // namespace redline::models
