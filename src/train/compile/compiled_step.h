// A step whose forward and backward are one compiled call, for the shapes that come often; all others, and every step
// before a package is ready, are eager. A package is used only when it gave what the task gives (loss and gradients
// within rounding) on two pieces that it was not recorded from; `auto` also wants it faster than the eager step.
//
// Whatever goes wrong (no Python, no compiler, a full disk, a step that cannot be recorded, a package that computes
// something else) is one line in the log and an event; training goes on eagerly.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "task/compiled_part.h"
#include "train/compile/compile_settings.h"
#include "train/step/eager_step.h"

namespace redline::train {

class CompiledPackage;
class PackageBuild;

class CompiledStep : public EagerStep {
 public:
  using Event = std::function<void(const std::string& kind, const measure::FieldList& fields)>;
  CompiledStep(task::Task& task, torch::Device device, measure::StepClock& clock, Agreement& agreement,
               GradientSync* sync, CompileSettings settings, Event event);
  ~CompiledStep() override;

  // Of the pieces since the last call, where steps are to be compiled: computed by a package, and all.
  struct Count {
    int64_t compiled = 0, all = 0;
  };
  Count take_count();
  // How many packages are in use.
  int64_t num_packages() const;
  // Shapes whose pieces are computed by a package, and the step since when; and what a checkpoint said of that: those
  // are compiled again before they are computed, whatever the mode, so that the run goes on as it went.
  const std::map<std::string, int64_t>& compiled() const { return compiled_; }
  void continue_with(std::map<std::string, int64_t> compiled) { compiled_ = std::move(compiled); }

 protected:
  task::Loss loss_of(const task::Batch& batch, task::Context& context) override;

 private:
  struct Shape;  // one bucket: its package, or how far it is on the way to one
  struct BatchLayout {
    int64_t seen = 0;
    Shape* shape = nullptr;  // null: not looked at yet
  };

  bool may_compile();
  Shape* shape_of(const task::Batch& batch, task::Context& context, task::Tensors& prepared);
  void consider(Shape& shape, const task::Batch& batch, task::Context& context, task::Tensors& prepared);
  void begin_build(Shape& shape, const task::Batch& batch, task::Context& context, const task::Tensors& prepared);
  void poll_build(bool wait);
  void load(Shape& shape, const std::filesystem::path& file, double seconds);
  void refuse(Shape& shape, const std::string& why);
  void refuse_all(const std::string& why);
  bool prove(Shape& shape, const task::Batch& batch, task::Context& context, const task::Tensors& prepared);
  bool wins_race(Shape& shape, const task::Batch& batch, task::Context& context);
  bool race(Shape& shape, const task::Batch& batch, task::Context& context);
  bool goes_on(const Shape& shape) const { return compiled_.count(text_of(shape)) != 0; }
  static const std::string& text_of(const Shape& shape);
  std::optional<task::Loss> run(Shape& shape, const task::Batch& batch, task::Context& context,
                                const task::Tensors& prepared);

  CompileSettings settings_;
  Event event_;
  bool looked_ = false, refused_ = false;
  bool wants_outputs_ = false;  // once they were wanted, packages have them: a probe then uses one for all its steps
  std::map<std::string, std::unique_ptr<Shape>> shapes_;  // by layouts of what the part takes
  std::map<std::string, BatchLayout> by_batch_;
  std::unique_ptr<PackageBuild> build_;  // one at a time
  Shape* building_ = nullptr;
  std::map<std::string, int64_t> compiled_;
  Count count_;
};

}  // namespace redline::train
