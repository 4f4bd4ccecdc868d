// The splat as operators of the dispatcher, for a compiled step: a compiler sees two calls whose results have the
// shapes that were recorded, and leaves them to us.
#include <torch/library.h>

#include "models/lift_splat/splat.h"
#include "models/lift_splat/splat_kernels.h"

namespace redline::models::lift_splat {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SplatIndex index_in(const torch::Tensor& cell_of, const torch::Tensor& begin, const torch::Tensor& points,
                    int64_t depths) {
  return {depths, begin.size(0) - 1, cell_of.const_data_ptr<int32_t>(), begin.const_data_ptr<int32_t>(),
          points.const_data_ptr<int32_t>()};
}

std::tuple<torch::Tensor, torch::Tensor> splat_kernel(const torch::Tensor& camera, const torch::Tensor& cell_of,
                                                      const torch::Tensor& begin, const torch::Tensor& points,
                                                      int64_t depths) {
  const torch::Tensor rows = camera.contiguous();
  torch::Tensor chances = depth_chances(rows, depths);
  return {splat_forward(rows, chances, index_in(cell_of, begin, points, depths)), chances};
}

torch::Tensor splat_backward_kernel(const torch::Tensor& grad, const torch::Tensor& camera,
                                    const torch::Tensor& chances, const torch::Tensor& cell_of,
                                    const torch::Tensor& begin, const torch::Tensor& points, int64_t depths) {
  return splat_backward(grad.contiguous(), camera.contiguous(), chances.contiguous(),
                        index_in(cell_of, begin, points, depths));
}

TORCH_LIBRARY(redline, library) {
  library.def("splat(Tensor camera, Tensor cell_of, Tensor begin, Tensor points, int depths) -> (Tensor, Tensor)");
  library.def(
      "splat_backward(Tensor grad, Tensor camera, Tensor chances, Tensor cell_of, Tensor begin, Tensor points, int "
      "depths) -> Tensor");
}
TORCH_LIBRARY_IMPL(redline, CPU, library) {
  library.impl("splat", splat_kernel);
  library.impl("splat_backward", splat_backward_kernel);
}

template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

struct TracedSplat : torch::autograd::Function<TracedSplat> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& camera, const torch::Tensor& cell_of,
                               const torch::Tensor& begin, const torch::Tensor& points, int64_t depths) {
    static const auto splat = find_operator<decltype(splat_kernel)>("redline::splat");
    auto [out, chances] = splat.call(camera, cell_of, begin, points, depths);
    ctx->save_for_backward({camera, chances, cell_of, begin, points});
    ctx->saved_data["depths"] = depths;
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    static const auto backward = find_operator<decltype(splat_backward_kernel)>("redline::splat_backward");
    const variable_list saved = ctx->get_saved_variables();
    variable_list out(5);
    out[0] =
        backward.call(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], ctx->saved_data["depths"].toInt());
    return out;
  }
};

torch::Tensor as_tensor(const std::vector<int32_t>& values, size_t size) {
  torch::Tensor out = torch::zeros({static_cast<int64_t>(size)}, torch::kInt32);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int32_t>());
  return out;
}

}  // namespace

PlanTensors plan_tensors(const SplatPlan& plan) {
  // As many points as there can be: how many lie inside the grid depends on values.
  return {as_tensor(plan.cell_of, plan.cell_of.size()), as_tensor(plan.begin, plan.begin.size()),
          as_tensor(plan.points, plan.cell_of.size())};
}

torch::Tensor lift_splat_traced(const torch::Tensor& camera, const PlanTensors& plan, int64_t depths) {
  return TracedSplat::apply(camera.to(torch::kFloat32), plan.cell_of, plan.begin, plan.points, depths);
}

}  // namespace redline::models::lift_splat
