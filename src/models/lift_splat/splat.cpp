#include "models/lift_splat/splat.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/check.h"
#include "models/layers/hand_node.h"
#include "models/layers/row_kernels.h"
#include "models/lift_splat/splat_kernels.h"

namespace redline::models::lift_splat {

namespace {

using torch::autograd::variable_list;

SplatIndex index_of(const SplatPlan& plan) {
  return {plan.depths, plan.samples * plan.cells, plan.cell_of.data(), plan.begin.data(), plan.points.data()};
}

struct LiftSplatBackward : HandNode {
  std::shared_ptr<const SplatPlan> plan;
  torch::Tensor chances;
  torch::ScalarType type = torch::kFloat32;
  void release_intermediates() override { chances.reset(); }
  std::string name() const override { return "LiftSplatBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list LiftSplatBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  if (!grads[0].defined()) return {torch::Tensor()};
  const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous();
  const torch::Tensor camera = input(0).to(torch::kFloat32).contiguous();
  return {splat_backward(g, camera, chances, index_of(*plan)).to(type)};
}

}  // namespace

torch::Tensor lift_splat(const torch::Tensor& camera, std::shared_ptr<const SplatPlan> plan) {
  REDLINE_CHECK(camera.size(0) * plan->depths == plan->all_points() && camera.size(1) > plan->depths,
                "the camera's rows are the plan's pixels");
  if (!on_plain_cpu(camera)) return lift_splat_plain(camera, *plan);
  const auto node = make_node<LiftSplatBackward>({camera});
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor rows = camera.to(torch::kFloat32).contiguous();
    const torch::Tensor chances = depth_chances(rows, plan->depths);
    out = splat_forward(rows, chances, index_of(*plan));
    if (node) {
      node->plan = std::move(plan);
      node->chances = chances;
      node->type = camera.scalar_type();
    }
  }
  attach(out, node);
  return out;
}

torch::Tensor lift_splat_plain(const torch::Tensor& camera, const SplatPlan& plan) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const torch::Tensor rows = camera.scalar_type() == torch::kFloat64 ? camera : camera.to(torch::kFloat32);
  const int64_t depths = plan.depths, features = rows.size(1) - depths;
  const torch::Tensor chances = rows.narrow(1, 0, depths).softmax(1);
  const torch::Tensor lifted =
      (chances.unsqueeze(2) * rows.narrow(1, depths, features).unsqueeze(1)).view({-1, features});
  const torch::Tensor cell =
      torch::tensor(std::vector<int64_t>(plan.cell_of.begin(), plan.cell_of.end()), torch::kInt64);
  const torch::Tensor inside = cell.ge(0).nonzero().squeeze(1).to(rows.device());
  return torch::zeros({plan.samples * plan.cells, features}, rows.options())
      .index_add(0, cell.to(rows.device()).index_select(0, inside), lifted.index_select(0, inside));
}

}  // namespace redline::models::lift_splat
