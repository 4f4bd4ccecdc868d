// The part of a task's loss that a compiled step computes: a pure function of tensors, with all that looks at values on
// the host before it (checks, lengths, draws on the host, plans) and all that keeps state after it (monitors).
//
// compute() is run once under a recorder, and what it did is then done without it: nothing in it may depend on values,
// only on shapes; nothing may be written but by LibTorch's operators or operators of our own that are registered. Two
// runs with equal shapes must do the same. Its draws come from the context (Context::dropout, drop_path, uniform,
// normal), and become inputs.
#pragma once

#include <map>
#include <string>

#include "task/task.h"

namespace redline::task {

using Tensors = std::map<std::string, torch::Tensor>;

struct PartResult {
  Loss loss;
  Tensors notes;  // for after(); detached
};

class CompiledPart {
 public:
  virtual ~CompiledPart() = default;
  // Why this task as configured has nothing to compile; empty: it has.
  virtual std::string refusal() const { return {}; }
  // What compute() reads besides the module. Shapes here decide which compiled step runs, so a job should have few:
  // padding to a bucket belongs here, where it changes nothing.
  virtual Tensors before(const Batch& batch, Context& ctx) = 0;
  virtual PartResult compute(const Tensors& in, Context& ctx) = 0;
  virtual void after(const Batch& batch, const PartResult& result, Context& ctx) {
    static_cast<void>(batch), static_cast<void>(result), static_cast<void>(ctx);
  }
};

// Why the task as configured cannot be compiled; empty: it can.
inline std::string compile_refusal(Task& task) {
  CompiledPart* const part = task.compiled_part();
  return part == nullptr ? "this task names no part to compile" : part->refusal();
}

}  // namespace redline::task
