// A step whose forward and backward are one compiled call, for the shapes that come often; all others, and every step
// before a package is ready, are eager. A package is used only when it gave what the task gives (package_proof.h) on
// two pieces; `auto` also wants it faster than the eager step. Which pieces are compiled, and from when, follows from
// what came before, which a checkpoint holds: with `true` a run can be repeated and resumed bit by bit.
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

  // Of the pieces since the last call, where steps are to be compiled. What no package computed was of a shape that
  // came too rarely (or too late for a place), was computed before its package was ready, or its package was refused.
  struct Count {
    int64_t compiled = 0, rare = 0, waiting = 0, refused = 0;
    int64_t all() const { return compiled + rare + waiting + refused; }
  };
  Count take_count();
  // How many packages are in use.
  int64_t num_packages() const;
  // And what a checkpoint said: shapes that a package computed are compiled again before they are computed, whatever
  // the mode, so that the run goes on as it went.
  CompileProgress progress() const;
  void continue_with(const CompileProgress& progress);
  // A stop was asked for while a step waited for its package: this step is not to be committed.
  bool interrupted() const override { return interrupted_; }
  void begin(const StepPass& pass) override;

 protected:
  task::Loss loss_of(const task::Batch& batch, task::Context& context) override;

 private:
  struct Shape;  // one bucket: its package, or how far it is on the way to one
  enum class Way { Compiled, Rare, Waiting, Refused };
  struct BatchLayout {
    int64_t seen = 0;
    Shape* shape = nullptr;  // null: not looked at yet
  };

  bool may_compile(const task::Context& context);
  int64_t places_taken() const;
  std::string mode_text() const;
  Way way_of(const Shape& shape) const;
  task::Loss eager(const task::Batch& batch, task::Context& context, Way why);
  Shape* shape_of(const task::Batch& batch, task::Context& context, task::Tensors& prepared);
  void consider(Shape& shape, const task::Batch& batch, task::Context& context, task::Tensors& prepared);
  void begin_build(Shape& shape, const task::Batch& batch, task::Context& context, const task::Tensors& prepared);
  void poll_build(bool wait);
  void load(Shape& shape, const std::filesystem::path& file, const std::string& name, double seconds);
  void refuse(Shape& shape, const std::string& why);
  void refuse_all(const std::string& why);
  bool prove(Shape& shape, const task::Batch& batch, task::Context& context, const task::Tensors& prepared);
  bool wins_race(Shape& shape, const task::Batch& batch, task::Context& context, const task::Tensors& prepared);
  bool goes_on(const Shape& shape) const { return compiled_.count(text_of(shape)) != 0; }
  static const std::string& text_of(const Shape& shape);
  std::optional<task::Loss> run(Shape& shape, const task::Batch& batch, task::Context& context,
                                const task::Tensors& prepared);

  CompileSettings settings_;
  Event event_;
  bool looked_ = false, refused_ = false, interrupted_ = false;
  bool wants_outputs_ = false;  // once they were wanted, packages have them: a probe then uses one for all its steps
  std::map<std::string, std::unique_ptr<Shape>> shapes_;  // by layouts of what the part takes
  std::map<std::string, BatchLayout> by_batch_;           // by hash of the batch's own
  std::map<std::string, int64_t> seen_before_;            // shapes of a checkpoint that did not come yet
  std::unique_ptr<PackageBuild> build_;                   // one at a time
  Shape* building_ = nullptr;
  std::map<std::string, int64_t> compiled_;
  Count count_;
};

// "96 of 100 pieces were computed by a compiled step; eager were 4 of a shape that came too rarely."
std::string compiled_share_text(const CompiledStep::Count& count);

}  // namespace redline::train
