#include "train/compile/compiled_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/compile/compiled_package.h"
#include "train/compile/package_build.h"
#include "train/compile/package_proof.h"

namespace redline::train {

namespace {

// A shape that came so often is worth a package; the first one is worth it at once.
constexpr int64_t kOften = 8;
constexpr int kProofs = 2;
constexpr size_t kMostLayouts = 1024;  // clips of all lengths: each batch has one of its own

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

}  // namespace

struct CompiledStep::Shape {
  std::string text;    // precision and sizes: in events and in checkpoints
  std::string label;   // in the log
  std::string layout;  // all that a package takes for granted
  int64_t seen = 0;    // counted as far as it decides
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
bool CompiledStep::may_compile(const task::Context& context) {
  if (settings_.mode == CompileMode::Off) return false;
  if (looked_) return !refused_;
  looked_ = true;
  if (const std::string why = task::compile_refusal(task()); !why.empty())
    refuse_all(why);
  else if (settings_.folder.empty())
    refuse_all("there is no folder for compiled steps (no home)");
  else if (context.collective != nullptr)
    refuse_all("trainer.sync_batchnorm exchanges statistics over ranks in the middle of a step");
  return !refused_;
}

CompiledStep::~CompiledStep() = default;

const std::string& CompiledStep::text_of(const Shape& shape) { return shape.text; }

CompiledStep::Count CompiledStep::take_count() { return std::exchange(count_, {}); }

int64_t CompiledStep::num_packages() const {
  return std::count_if(shapes_.begin(), shapes_.end(),
                       [](const auto& item) { return item.second->package != nullptr; });
}

// Those of a checkpoint too that did not come again yet: theirs are not to be had by others.
int64_t CompiledStep::places_taken() const {
  return std::ssize(compiled_) + std::count_if(shapes_.begin(), shapes_.end(), [this](const auto& item) {
           return item.second->package != nullptr && !goes_on(*item.second);
         });
}

CompileProgress CompiledStep::progress() const {
  CompileProgress all{compiled_, seen_before_, {}};
  for (const auto& [key, shape] : shapes_) all.shapes[shape->text] = shape->seen;
  for (const auto& [key, layout] : by_batch_) all.layouts[key] = layout.seen;
  return all;
}

void CompiledStep::continue_with(const CompileProgress& progress) {
  compiled_ = progress.since;
  seen_before_ = progress.shapes;
  for (const auto& [key, shape] : shapes_) {  // packages that are there stay: a trial begins anew with what it has
    const auto before = seen_before_.extract(shape->text);
    shape->seen = before ? before.mapped() : 0;
  }
  std::erase_if(by_batch_, [](const auto& item) { return item.second.shape == nullptr; });
  for (const auto& [key, seen] : progress.layouts) by_batch_[key].seen = seen;
}

void CompiledStep::begin(const StepPass& pass) {
  interrupted_ = false;
  EagerStep::begin(pass);
}

std::string compiled_share_text(const CompiledStep::Count& count) {
  std::string text = fmt::format("{} of {} pieces were computed by a compiled step", count.compiled, count.all());
  std::vector<std::string> others;
  const auto add = [&](int64_t number, const char* why) {
    if (number > 0) others.push_back(fmt::format("{} {}", number, why));
  };
  add(count.rare, "of a shape that came too rarely");
  add(count.waiting, "before a package was ready");
  add(count.refused, "of a shape whose package is not used");
  return others.empty() ? text + "." : text + "; eager were " + join(others, ", ") + ".";
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

std::string CompiledStep::mode_text() const {
  return fmt::format("{} {};", precision_name(pass().precision), wants_outputs_);
}

// Null: a batch of a shape that has come only once, or of one shape too many; what it would be computed as is not worth
// finding out. Fills `prepared` when that was needed to tell.
CompiledStep::Shape* CompiledStep::shape_of(const task::Batch& batch, task::Context& context, task::Tensors& prepared) {
  wants_outputs_ = wants_outputs_ || context.wants_outputs();
  const std::string key = hex64(hash64(mode_text() + layouts_text(batch.tensors)));
  if (by_batch_.size() >= kMostLayouts && !by_batch_.contains(key)) return nullptr;
  BatchLayout& layout = by_batch_[key];
  if (layout.shape != nullptr) return layout.shape;
  layout.seen = std::min<int64_t>(layout.seen + 1, 2);
  if (layout.seen < 2 && by_batch_.size() > 1) return nullptr;
  prepared = task().compiled_part()->before(batch, context);
  const std::string all = mode_text() + layouts_text(prepared);
  auto& shape = shapes_[all];
  if (shape == nullptr) {
    shape = std::make_unique<Shape>();
    shape->text = std::string(precision_name(pass().precision)) + " " + shapes_text(prepared);
    shape->label = largest_text(prepared);
    shape->layout = all;
    if (const auto before = seen_before_.extract(shape->text)) shape->seen = before.mapped();
  }
  layout.seen = 2;
  return layout.shape = shape.get();
}

void CompiledStep::consider(Shape& shape, const task::Batch& batch, task::Context& context, task::Tensors& prepared) {
  if (shape.refused || shape.package != nullptr) return;
  const bool goes_on_compiled = goes_on(shape), waits = settings_.mode == CompileMode::Before || goes_on_compiled;
  if (building_ == &shape) return poll_build(waits);  // a step that waited for it was given up
  if (build_ != nullptr && goes_on_compiled) poll_build(/*wait=*/true);
  if (build_ != nullptr || (!goes_on_compiled && places_taken() >= settings_.most_packages)) return;
  const bool first = shapes_.size() == 1 && shape.seen == 1 && seen_before_.empty();
  if (shape.seen < kOften && !first && !goes_on_compiled) return;
  if (prepared.empty()) prepared = task().compiled_part()->before(batch, context);
  begin_build(shape, batch, context, prepared);
  if (build_ != nullptr) poll_build(waits);
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
      load(shape, *file, name, cache.seconds_of(name));
      return;
    }
    const bool waits = settings_.mode == CompileMode::Before || goes_on(shape);
    log_info(fmt::format("Compiling the step for {} ({} operators){}.", shape.label, step.program.calls.size(),
                         waits ? "; training goes on after it" : " in the background"));
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
  if (!outcome) {
    interrupted_ = interrupted_ || wait;
    return;
  }
  const std::string name = build_->name();
  build_.reset();
  Shape& shape = *std::exchange(building_, nullptr);
  if (outcome->package)
    load(shape, *outcome->package, name, outcome->seconds);
  else
    refuse(shape, first_line(outcome->problem));
}

void CompiledStep::load(Shape& shape, const std::filesystem::path& file, const std::string& name, double seconds) {
  try {
    shape.package = std::make_unique<CompiledPackage>(file, shape.signature, task().module());
    shape.compile_seconds = seconds;
    if (goes_on(shape))
      event_("compile.resumed", {{"shape", shape.text}, {"since", compiled_.at(shape.text)}, {"package", name}});
  } catch (const std::exception& error) {
    PackageCache(settings_.folder).drop(name);  // whole, and still no package
    refuse(shape, first_line(error.what()));
  }
}

// Memory for both ways at once is asked for here alone: where there is none, the piece itself is not to blame.
bool CompiledStep::prove(Shape& shape, const task::Batch& batch, task::Context& context,
                         const task::Tensors& prepared) {
  try {
    const Proof proof = prove_package(task(), *shape.package, {batch, prepared, pass(), device()});
    if (!proof.decided) return false;
    if (proof.problem.empty()) {
      event_("compile.proof", {{"step", context.step()},
                               {"shape", shape.text},
                               {"loss_off", proof.loss_off},
                               {"gradients_off", proof.gradients_off}});
      --shape.proofs_left;
      return true;
    }
    refuse(shape, fmt::format("it computes something else than the task ({})", proof.problem));
  } catch (const c10::OutOfMemoryError&) {
    refuse(shape, "there is too little memory to hold it against the eager step");
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
  }
  return false;
}

bool CompiledStep::wins_race(Shape& shape, const task::Batch& batch, task::Context& context,
                             const task::Tensors& prepared) {
  RaceTimes times;
  try {
    times = race_package(task(), *shape.package, {batch, prepared, pass(), device()});
  } catch (const c10::OutOfMemoryError&) {
    refuse(shape, "there is too little memory to race it against the eager step");
    return false;
  } catch (const std::exception& error) {
    refuse(shape, first_line(error.what()));
    return false;
  }
  shape.raced = true;
  const bool background = settings_.mode == CompileMode::Background,
             faster = times.compiled_seconds <= times.eager_seconds;
  const double gain = times.eager_seconds - times.compiled_seconds;
  const std::string said =
      fmt::format("{:.1f} ms compiled, {:.1f} ms eager", times.compiled_seconds * 1e3, times.eager_seconds * 1e3);
  if (background && !faster) {
    refuse(shape, fmt::format("it is slower ({})", said));
    return false;
  }
  event_("compile.switch", {{"step", context.step()},
                            {"shape", shape.text},
                            {"eager_ms", times.eager_seconds * 1e3},
                            {"compiled_ms", times.compiled_seconds * 1e3},
                            {"compile_seconds", shape.compile_seconds},
                            {"repeatable", !background}});
  if (faster)
    log_info(fmt::format("The step for {} is compiled: {}; compiling took {}, which {} steps bring back.{}",
                         shape.label, said, format_seconds(shape.compile_seconds),
                         std::max<int64_t>(1, std::llround(shape.compile_seconds / std::max(1e-9, gain))),
                         background
                             ? " When it was ready depends on the machine, so this run cannot be repeated bit by "
                               "bit (compile: true can)."
                             : ""));
  else
    log_warning(fmt::format("The step for {} is compiled as asked, but is slower ({}); compile: auto would not use it.",
                            shape.label, said));
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
  task::Loss loss = std::move(result.part.loss);
  loss.value = with_gradients(loss.value, shape.package->parameters(), std::move(result.gradients), pass().loss_scale);
  return loss;
}

CompiledStep::Way CompiledStep::way_of(const Shape& shape) const {
  return shape.refused ? Way::Refused : shape.package != nullptr || building_ == &shape ? Way::Waiting : Way::Rare;
}

task::Loss CompiledStep::eager(const task::Batch& batch, task::Context& context, Way why) {
  ++(why == Way::Refused ? count_.refused : why == Way::Waiting ? count_.waiting : count_.rare);
  return EagerStep::loss_of(batch, context);
}

task::Loss CompiledStep::loss_of(const task::Batch& batch, task::Context& context) {
  // A stand-in is one sample, whatever the job's shapes are.
  if (!may_compile(context) || !context.counts) return EagerStep::loss_of(batch, context);
  poll_build(/*wait=*/false);
  task::Tensors prepared;
  Shape* const found = shape_of(batch, context, prepared);
  if (found == nullptr) return eager(batch, context, Way::Rare);
  Shape& shape = *found;
  shape.seen = std::min(shape.seen + 1, kOften);
  consider(shape, batch, context, prepared);
  if (shape.package == nullptr) return eager(batch, context, way_of(shape));
  if (prepared.empty()) prepared = task().compiled_part()->before(batch, context);
  // A package looks at no sizes: what a batch of a known layout is prepared to must be what it was made for.
  if (mode_text() + layouts_text(prepared) != shape.layout) return eager(batch, context, Way::Rare);
  if (shape.proofs_left > 0) {
    const bool sound = prove(shape, batch, context, prepared);
    if (!sound || (!shape.raced && !goes_on(shape) && !wins_race(shape, batch, context, prepared)))
      return eager(batch, context, way_of(shape));
  }
  compiled_.try_emplace(shape.text, context.step());
  if (auto loss = run(shape, batch, context, prepared)) {
    ++count_.compiled;
    return std::move(*loss);
  }
  return eager(batch, context, Way::Refused);
}

}  // namespace redline::train
