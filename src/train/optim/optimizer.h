// AdamW, Adam, SGD, Lion and Adafactor with state of our own, on our kernel (Adam in float32 on the CPU) or LibTorch's
// fused ones: torch::optim has no fused path and is ten times slower. All state is allocated at construction, so that a
// step allocates nothing and cannot fail half way (Lion and Adafactor: other_steps.h).
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "train/files/safetensors.h"
#include "train/optim/adam_kernel.h"
#include "train/optim/optim_config.h"

namespace redline::train {

// A trainable parameter and what its rules say.
struct OptimizedParameter {
  std::string name;
  torch::Tensor value;
  double lr_scale = 1.0, weight_decay = 0.0;
  std::string group = {};  // of the task; empty: none
};

class Optimizer {
 public:
  Optimizer(const OptimConfig& config, std::vector<OptimizedParameter> parameters);

  // One step of every parameter that has a gradient, with gradients divided by `divisor` (the kernels do it while
  // reading). `groups`: only parameters of these task groups; empty: all. False when a weight that moved is not finite
  // now; weights on other devices are not looked at.
  bool step(double lr, double divisor, const std::vector<std::string>& groups = {});
  // decay_scale multiplies every parameter's weight decay (schedules of weight decay).
  void set_decay_scale(double scale) { decay_scale_ = scale; }

  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  std::vector<torch::Tensor> gradients() const;  // in the order of parameters(); undefined where there is none
  void clear_gradients();

  // "exp_avg.<parameter>", ..., and "steps" (int64, one per parameter).
  NamedTensors state() const;
  // Names must match exactly; throws CheckpointError naming the first that does not.
  void load_state(const std::map<std::string, torch::Tensor>& state);
  std::vector<torch::Tensor> state_tensors() const;  // floating state, for finiteness checks
  std::vector<std::string> state_names() const;

 private:
  struct Group {  // equal lr scale, weight decay and task group
    double lr_scale, weight_decay;
    std::string name;
    std::vector<size_t> members;
  };
  struct Lists {  // arguments of one fused call, reused from step to step
    std::vector<torch::Tensor> params, grads, first, second, third;
    std::vector<int64_t> counts;
    void clear();
  };
  bool step_group(const Group& group, double lr, double divisor);
  bool step_adam(double lr, double decay, double divisor);
  void step_other(double lr, double decay, double divisor);
  void step_fused(double lr, double decay, double divisor, bool first_time);
  torch::Tensor step_tensor(int64_t count);

  OptimConfig config_;
  std::vector<OptimizedParameter> parameters_;
  std::vector<Group> groups_;
  std::vector<torch::Tensor> first_, second_, third_;  // Adam: exp_avg, exp_avg_sq, max; SGD: momentum buffer;
                                                       // Lion: exp_avg; Adafactor: row_var, col_var
  std::vector<int64_t> steps_;
  std::vector<std::pair<int64_t, torch::Tensor>> step_tensors_;  // distinct counts in this step
  torch::Tensor divisor_;
  double decay_scale_ = 1.0;
  Lists lists_;
  std::vector<AdamTensor> adam_;
};

}  // namespace redline::train
