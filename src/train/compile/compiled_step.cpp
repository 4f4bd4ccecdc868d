#include "train/compile/compiled_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/compile/compiled_package.h"
#include "train/compile/package_build.h"

namespace redline::train {

namespace {

// A shape that came so often is worth a package; the first one is worth it at once.
constexpr int64_t kOften = 8;
constexpr int kProofs = 2;
constexpr size_t kMostLayouts = 4096;  // clips of all lengths: each batch has one of its own
constexpr int kRaceTurns = 3;
// What two ways to compute the same may differ by, relative: a model whose eager step is held against itself on another
// number of threads differs by 1 % in its gradients. A wrong program differs by far more.
struct Tolerance {
  double loss, gradients;
};
Tolerance tolerance_of(Precision precision) {
  return precision == Precision::Fp32 ? Tolerance{1e-3, 3e-2} : Tolerance{2e-2, 3e-1};
}

std::string layouts_text(const task::Tensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("{} {}{}{};", name, c10::str(tensor.sizes()), c10::str(tensor.strides()),
                        torch::toString(tensor.scalar_type()));
  return text;
}

std::string shapes_text(const task::Tensors& tensors) {
  std::vector<std::string> parts;
  for (const auto& [name, tensor] : tensors) parts.push_back(name + " " + c10::str(tensor.sizes()));
  return join(parts, ", ");
}

// As part of a sentence.
std::string first_line(const std::string& text) {
  std::string line = printable(text.substr(0, text.find('\n')));
  while (ends_with(line, ".")) line.pop_back();
  return line;
}

// "x [8, 416, 80]": the largest of them tells most.
std::string largest_text(const task::Tensors& tensors) {
  const auto largest = std::max_element(
      tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.second.numel() < b.second.numel(); });
  return largest == tensors.end() ? std::string() : largest->first + " " + c10::str(largest->second.sizes());
}

double distance(const torch::Tensor& found, const torch::Tensor& wanted) {
  const torch::Tensor a = found.detach().to(torch::kFloat64), b = wanted.detach().to(torch::kFloat64);
  return (a - b).norm().item<double>();
}

}  // namespace

struct CompiledStep::Shape {
  std::string text;   // all of it: in events and in checkpoints
  std::string label;  // in the log
  int64_t seen = 0;
  bool refused = false;
  int proofs_left = kProofs;
  bool raced = false;
  StepSignature signature;
  std::unique_ptr<CompiledPackage> package;
  double compile_seconds = 0;
};

CompiledStep::CompiledStep(task::Task& task, torch::Device device, measure::StepClock& clock, Agreement& agreement,
                           GradientSync* sync, CompileSettings settings, Event event)
    : EagerStep(task, device, clock, agreement, sync), settings_(std::move(settings)), event_(std::move(event)) {}

// Once, at the first piece: before that nobody may listen to events.
bool CompiledStep::may_compile() {
  if (settings_.mode == CompileMode::Off) return false;
  if (looked_) return !refused_;
  looked_ = true;
  if (const std::string why = task::compile_refusal(task()); !why.empty())
    refuse_all(why);
  else if (settings_.folder.empty())
    refuse_all("there is no folder for compiled steps (no home)");
  return !refused_;
}

CompiledStep::~CompiledStep() = default;

const std::string& CompiledStep::text_of(const Shape& shape) { return shape.text; }

CompiledStep::Count CompiledStep::take_count() { return std::exchange(count_, {}); }

int64_t CompiledStep::num_packages() const {
  return std::count_if(shapes_.begin(), shapes_.end(),
                       [](const auto& item) { return item.second->package != nullptr; });
}

void CompiledStep::refuse_all(const std::string& why) {
  refused_ = true;
  log_warning(fmt::format("The step is not compiled: {}. Training goes on without.", why));
  event_("compile.refused", {{"why", why}});
}

void CompiledStep::refuse(Shape& shape, const std::string& why) {
  shape.refused = true;
  shape.package.reset();
  compiled_.erase(shape.text);
  log_warning(fmt::format("The step for {} is not compiled: {}. Training goes on without.", shape.label, why));
  event_("compile.refused", {{"shape", shape.text}, {"why", why}});
}

// Null: a batch of a shape that has come only once, or of one shape too many; what it would be computed as is not worth
// finding out. Fills `prepared` when that was needed to tell.
CompiledStep::Shape* CompiledStep::shape_of(const task::Batch& batch, task::Context& context, task::Tensors& prepared) {
  wants_outputs_ = wants_outputs_ || context.wants_outputs();
  const std::string mode = fmt::format("{} {};", precision_name(pass().precision), wants_outputs_);
  const std::string key = mode + layouts_text(batch.tensors);
  if (by_batch_.size() >= kMostLayouts && !by_batch_.contains(key)) return nullptr;
  BatchLayout& layout = by_batch_[key];
  if (layout.shape != nullptr) return layout.shape;
  if (++layout.seen < 2 && by_batch_.size() > 1) return nullptr;
  prepared = task().compiled_part()->before(batch, context);
  auto& shape = shapes_[mode + layouts_text(prepared)];
  if (shape == nullptr) {
    shape = std::make_unique<Shape>();
    shape->text = shapes_text(prepared);
    shape->label = largest_text(prepared);
  }
  return layout.shape = shape.get();
}

void CompiledStep::consider(Shape& shape, const task::Batch& batch, task::Context& context, task::Tensors& prepared) {
  if (shape.refused || shape.package != nullptr || build_ != nullptr) return;
  const int64_t packages = num_packages();
  if (packages >= settings_.most_packages) return;
  const bool first = shapes_.size() == 1 && shape.seen == 1, goes_on_compiled = goes_on(shape);
  if (shape.seen < kOften && !first && !goes_on_compiled) return;
  if (prepared.empty()) prepared = task().compiled_part()->before(batch, context);
  begin_build(shape, batch, context, prepared);
  poll_build(/*wait=*/settings_.mode == CompileMode::Before || goes_on_compiled);
}

void CompiledStep::begin_build(Shape& shape, const task::Batch& batch, task::Context& context,
                               const task::Tensors& prepared) {
  try {
    // Other draws than the ones it will be proved with: a draw that became part of the program would show.
    const TraceOptions options{context.seed() + 1, pass().precision, device(), wants_outputs_};
    const TracedStep step = trace_step(task(), prepared, batch.sample_ids, options);
    const std::string name = package_name(step, settings_);
    shape.signature = step.signature;
    const PackageCache cache(settings_.folder);
    std::string problem;
    const auto file = cache.find(name, &problem);
    if (!problem.empty()) log_warning(problem);
    if (file) {
      load(shape, *file, cache.seconds_of(name));
      return;
    }
    const bool waits = settings_.mode == CompileMode::Before || goes_on(shape);
    log_info(fmt::format("Compiling the step for {} ({} operators){}.", shape.label, step.program.calls.size(),
                         waits ? "; training goes on after it"
                               : " in the background; when it is ready depends on the machine, so this run cannot be "
                                 "repeated bit by bit (compile: true can)"));
    event_("compile.begin", {{"step", context.step()},
                             {"shape", shape.text},
                             {"operators", static_cast<int64_t>(step.program.calls.size())},
                             {"package", name}});
    build_ = std::make_unique<PackageBuild>(step, name, settings_);
    building_ = &shape;
  } catch (const c10::OutOfMemoryError&) {
    refuse(shape, "there is too little memory to record it");
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
  }
}

void CompiledStep::poll_build(bool wait) {
  if (build_ == nullptr) return;
  const auto outcome = build_->poll(wait ? -1 : 0);
  if (!outcome) return;
  build_.reset();
  Shape& shape = *std::exchange(building_, nullptr);
  if (outcome->package)
    load(shape, *outcome->package, outcome->seconds);
  else
    refuse(shape, first_line(outcome->problem));
}

void CompiledStep::load(Shape& shape, const std::filesystem::path& file, double seconds) {
  try {
    shape.package = std::make_unique<CompiledPackage>(file, shape.signature, task().module());
    shape.compile_seconds = seconds;
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
  }
}

// The same piece both ways, with the same draws.
bool CompiledStep::prove(Shape& shape, const task::Batch& batch, task::Context& context,
                         const task::Tensors& prepared) {
  const auto quiet = [&] {
    task::Context copy(context.seed(), context.step(), context.training(), batch.sample_ids);
    copy.device = context.device;
    copy.counts = false;
    return copy;
  };
  try {
    task::Context compiled_context = quiet(), eager_context = quiet();
    const CompiledPackage::Result found = shape.package->run(prepared, compiled_context, pass().loss_scale);
    const task::Loss eager = task().loss(batch, eager_context);
    std::vector<torch::Tensor> wanted =
        torch::autograd::grad({eager.value}, shape.package->parameters(), {}, false, false, /*allow_unused=*/true);
    const Tolerance tolerance = tolerance_of(pass().precision);
    const double loss_off =
        distance(found.part.loss.value, eager.value) / std::max(1e-6, std::abs(eager.value.item<double>()));
    double gradient_off = 0, gradient_size = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i].defined()) wanted[i] = torch::zeros_like(shape.package->parameters()[i]);
      const double off = distance(found.gradients[i] / pass().loss_scale, wanted[i]);
      const double size = wanted[i].to(torch::kFloat64).norm().item<double>();
      gradient_off += off * off;
      gradient_size += size * size;
    }
    const double gradients = std::sqrt(gradient_off) / std::max(1e-12, std::sqrt(gradient_size));
    if (loss_off <= tolerance.loss && gradients <= tolerance.gradients) {
      event_("compile.proof",
             {{"step", context.step()}, {"shape", shape.text}, {"loss_off", loss_off}, {"gradients_off", gradients}});
      --shape.proofs_left;
      return true;
    }
    refuse(shape, fmt::format("it computes something else than the task (loss off by {:.2g}, gradients by {:.2g})",
                              loss_off, gradients));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
  }
  return false;
}

bool CompiledStep::wins_race(Shape& shape, const task::Batch& batch, task::Context& context) {
  try {
    return race(shape, batch, context);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
    return false;
  }
}

// Turn by turn on this piece: what the task's own step takes, and what the package takes.
bool CompiledStep::race(Shape& shape, const task::Batch& batch, task::Context& context) {
  std::vector<double> eager_seconds, compiled_seconds;
  for (int turn = 0; turn <= kRaceTurns; ++turn) {
    for (const bool compiled : {false, true}) {
      task::Context copy(context.seed(), context.step(), context.training(), batch.sample_ids);
      copy.device = context.device;
      copy.counts = false;
      const int64_t begin = now_ns();
      if (compiled) {
        shape.package->run(task().compiled_part()->before(batch, copy), copy, pass().loss_scale);
      } else {
        const task::Loss loss = task().loss(batch, copy);
        torch::autograd::grad({loss.value}, shape.package->parameters(), {}, false, false, /*allow_unused=*/true);
      }
      if (turn > 0) (compiled ? compiled_seconds : eager_seconds).push_back(seconds_between(begin, now_ns()));
    }
  }
  shape.raced = true;
  std::sort(eager_seconds.begin(), eager_seconds.end());
  std::sort(compiled_seconds.begin(), compiled_seconds.end());
  const double eager = eager_seconds[kRaceTurns / 2], compiled = compiled_seconds[kRaceTurns / 2];
  const double gain = eager / compiled;
  event_("compile.switch", {{"step", context.step()},
                            {"shape", shape.text},
                            {"eager_ms", eager * 1e3},
                            {"compiled_ms", compiled * 1e3},
                            {"compile_seconds", shape.compile_seconds}});
  const std::string times = fmt::format("{:.1f} ms compiled, {:.1f} ms eager", compiled * 1e3, eager * 1e3);
  if (gain >= 1.0) {
    log_info(fmt::format("The step for {} is compiled: {}; compiling took {}, which {} steps bring back.", shape.label,
                         times, format_seconds(shape.compile_seconds),
                         std::max<int64_t>(1, std::llround(shape.compile_seconds / std::max(1e-9, eager - compiled)))));
    return true;
  }
  if (settings_.mode == CompileMode::Background) {
    refuse(shape, fmt::format("it is slower ({})", times));
    return false;
  }
  log_warning(fmt::format("The step for {} is compiled as asked, but is slower ({}); compile: auto would not use it.",
                          shape.label, times));
  return true;
}

// None when the package failed: then the piece is computed eagerly, which also tells whether memory was the reason.
std::optional<task::Loss> CompiledStep::run(Shape& shape, const task::Batch& batch, task::Context& context,
                                            const task::Tensors& prepared) {
  CompiledPackage::Result result;
  try {
    result = shape.package->run(prepared, context, pass().loss_scale);
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
    return std::nullopt;
  }
  for (const auto& [name, tensor] : result.outputs) context.output(name, tensor);
  task().compiled_part()->after(batch, result.part, context);
  ++count_.compiled;
  task::Loss loss = std::move(result.part.loss);
  loss.value = with_gradients(loss.value, shape.package->parameters(), std::move(result.gradients), pass().loss_scale);
  return loss;
}

task::Loss CompiledStep::loss_of(const task::Batch& batch, task::Context& context) {
  // Statistics over ranks are exchanged in the middle of a step, which a package has no place for.
  if (!may_compile() || context.collective != nullptr) return EagerStep::loss_of(batch, context);
  ++count_.all;
  poll_build(/*wait=*/false);
  task::Tensors prepared;
  Shape* const found = shape_of(batch, context, prepared);
  if (found == nullptr) return EagerStep::loss_of(batch, context);
  Shape& shape = *found;
  ++shape.seen;
  consider(shape, batch, context, prepared);
  if (shape.package == nullptr) return EagerStep::loss_of(batch, context);
  if (prepared.empty()) prepared = task().compiled_part()->before(batch, context);
  if (shape.proofs_left > 0) {
    const bool sound = prove(shape, batch, context, prepared);
    if (!sound || (!shape.raced && !goes_on(shape) && !wins_race(shape, batch, context)))
      return EagerStep::loss_of(batch, context);
    compiled_.try_emplace(shape.text, context.step());
  }
  if (auto loss = run(shape, batch, context, prepared)) return std::move(*loss);
  return EagerStep::loss_of(batch, context);
}

}  // namespace redline::train
