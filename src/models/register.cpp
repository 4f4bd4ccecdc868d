#include "models/register.h"

#include "core/error.h"
#include "models/convnext/task.h"
#include "models/lift_splat/reference_names.h"
#include "models/lift_splat/task.h"
#include "models/sequence_vae/task.h"
#include "models/speech_ssl/nemo_config.h"
#include "models/speech_ssl/speech_ssl_task.h"

namespace redline::models {

void register_all(task::Registry& registry) {
  registry.add(speech::speech_ssl_entry());
  registry.add(sequence_vae::sequence_vae_entry());
  registry.add(convnext::convnext_entry());
  task::TaskEntry lift_splat = lift_splat::lift_splat_entry();
  lift_splat.from_reference_order = from_reference_order;
  registry.add(std::move(lift_splat));
}

torch::Tensor from_reference_order(const std::string& name, const torch::Tensor& tensor) {
  return lift_splat::in_order_of_swin(name, tensor);
}

std::string reference_config(const config::Node& resolved) {
  const config::Node* const task = resolved.find("task");
  if (task != nullptr && task->text() == "speech_ssl") return speech::nemo_config(resolved);
  throw ConfigError("Only a speech_ssl run becomes a .nemo file without --config; this is a run of " +
                    (task != nullptr ? task->text() : std::string("no known task")) + ".");
}

}  // namespace redline::models
