#include "task/task.h"

namespace redline::task {

std::map<std::string, torch::Tensor> Task::predict(const Batch& batch, Context& ctx) {
  ctx.want_outputs(true);
  loss(batch, ctx);
  return std::move(ctx.outputs());
}

}  // namespace redline::task
