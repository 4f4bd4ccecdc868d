// Autograd runs backward of CPU graphs on the calling thread, so a thread-local callback sees both directions.
#include "train/guards/operator_watch.h"

#include <ATen/record_function.h>

#include <map>
#include <string_view>

#include "core/time.h"

namespace redline::train {

namespace {

// Outputs of these hold no result yet, or hold infinities on purpose.
bool makes_no_values(std::string_view name) {
  for (const char* part : {"empty", "resize", "set_", "detach", "alias", "view"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}
bool makes_infinities(std::string_view name) {
  for (const char* part : {"fill", "full", "where", "scalar_tensor", "log", "clone", "copy", "to"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

template <class Visit>
void for_each_tensor(const std::vector<c10::IValue>& values, Visit visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const torch::Tensor& tensor : value.toTensorVector())
        if (tensor.defined()) visit(tensor);
    }
  }
}

std::vector<int64_t> bad_rows(const torch::Tensor& bad) {
  std::vector<int64_t> rows;
  if (bad.dim() == 0 || bad.size(0) < 2) return rows;
  const torch::Tensor per_row = bad.reshape({bad.size(0), -1}).any(1).cpu();
  for (int64_t i = 0; i < per_row.size(0); ++i)
    if (per_row[i].item<bool>()) rows.push_back(i);
  return rows;
}

struct WatchState {
  FoundNonFinite nan, infinity;
  int64_t operators = 0, depth = 0;
  bool inside = false;  // our own operators are not watched
};
thread_local WatchState* current_watch = nullptr;

void look_at(WatchState& state, const char* name, const torch::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return;
  const auto note = [&](FoundNonFinite& slot, const torch::Tensor& bad) {
    if (slot.found || !bad.any().item<bool>()) return;
    slot = {true, name, state.operators, tensor.sizes().vec(), bad_rows(bad)};
  };
  note(state.nan, torch::isnan(tensor));
  if (!makes_infinities(name)) note(state.infinity, torch::isinf(tensor));
}

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction&) {
  if (current_watch != nullptr && !current_watch->inside) ++current_watch->depth;
  return nullptr;
}

// Only what the model itself called: operators inside others hand each other memory that holds no result yet.
void after_operator(const at::RecordFunction& fn, at::ObserverContext*) {
  WatchState* state = current_watch;
  if (state == nullptr || state->inside || --state->depth > 0 || state->nan.found) return;
  ++state->operators;
  if (makes_no_values(fn.name())) return;
  state->inside = true;
  const torch::NoGradGuard no_grad;
  for_each_tensor(fn.outputs(), [&](const torch::Tensor& tensor) { look_at(*state, fn.name(), tensor); });
  state->inside = false;
}

struct Frame {
  int64_t begin_ns, children_ns;
  double flops;
};
struct TimerState {
  std::vector<Frame> stack;
  std::map<std::pair<std::string, torch::ScalarType>, OperatorTime> totals;
};
thread_local TimerState* current_timer = nullptr;

// Multiply-adds of the matrix products counted twice; 0 for everything else.
double matrix_flops(std::string_view name, at::ArrayRef<const c10::IValue> inputs) {
  std::vector<torch::Tensor> tensors;
  for (const c10::IValue& value : inputs)
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
  const auto product = [&](size_t i) {  // of tensors i and i + 1, the last two dimensions multiplied
    if (tensors.size() < i + 2 || tensors[i].dim() < 2 || tensors[i + 1].dim() < 2) return 0.0;
    return 2.0 * static_cast<double>(tensors[i].numel()) * static_cast<double>(tensors[i + 1].size(-1));
  };
  if (name == "aten::mm" || name == "aten::bmm") return product(0);
  if (name == "aten::addmm" || name == "aten::baddbmm") return product(1);
  return 0;
}

// Arguments are there only on the way in.
std::unique_ptr<at::ObserverContext> enter_operator(const at::RecordFunction& fn) {
  if (current_timer != nullptr) current_timer->stack.push_back({now_ns(), 0, matrix_flops(fn.name(), fn.inputs())});
  return nullptr;
}

void leave_operator(const at::RecordFunction& fn, at::ObserverContext*) {
  TimerState* state = current_timer;
  if (state == nullptr || state->stack.empty()) return;
  const Frame frame = state->stack.back();
  state->stack.pop_back();
  const int64_t total = now_ns() - frame.begin_ns;
  if (!state->stack.empty()) state->stack.back().children_ns += total;
  torch::ScalarType dtype = torch::ScalarType::Undefined;
  const auto first_float = [&](const torch::Tensor& tensor) {
    if (dtype == torch::ScalarType::Undefined && tensor.is_floating_point()) dtype = tensor.scalar_type();
  };
  for_each_tensor(fn.outputs(), first_float);
  OperatorTime& entry = state->totals[{fn.name(), dtype}];
  entry.name = fn.name();
  entry.dtype = dtype;
  ++entry.calls;
  entry.self_seconds += static_cast<double>(total - frame.children_ns) * 1e-9;
  entry.flops += frame.flops;
}

}  // namespace

struct NonFiniteWatch::Impl {
  WatchState state;
  at::CallbackHandle handle = 0;
};

NonFiniteWatch::NonFiniteWatch() : impl_(std::make_unique<Impl>()) {
  current_watch = &impl_->state;
  impl_->handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(before_operator, after_operator)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

NonFiniteWatch::~NonFiniteWatch() {
  at::removeCallback(impl_->handle);
  current_watch = nullptr;
}

FoundNonFinite NonFiniteWatch::result() const {
  const FoundNonFinite &nan = impl_->state.nan, &infinity = impl_->state.infinity;
  if (infinity.found && (!nan.found || infinity.index < nan.index)) return infinity;
  return nan;
}

struct OperatorTimer::Impl {
  TimerState state;
  at::CallbackHandle handle = 0;
};

OperatorTimer::OperatorTimer() : impl_(std::make_unique<Impl>()) {
  current_timer = &impl_->state;
  impl_->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(enter_operator, leave_operator)
                                                 .needsInputs(true)
                                                 .needsOutputs(true)
                                                 .scopes({at::RecordScope::FUNCTION}));
}

OperatorTimer::~OperatorTimer() {
  at::removeCallback(impl_->handle);
  current_timer = nullptr;
}

std::vector<OperatorTime> OperatorTimer::times() const {
  std::vector<OperatorTime> result;
  for (const auto& [key, entry] : impl_->state.totals) result.push_back(entry);
  std::sort(result.begin(), result.end(),
            [](const OperatorTime& a, const OperatorTime& b) { return a.self_seconds > b.self_seconds; });
  return result;
}

std::string operator_words(const std::string& name) {
  std::string words = name;
  const std::string engine = "autograd::engine::evaluate_function: ";
  if (words.starts_with(engine)) words.erase(0, engine.size());
  // A node of our own: the innermost name, and that it is its backward.
  const bool node = words.starts_with("torch::autograd::CppNode<");
  if (node && words.ends_with('>')) words.pop_back();
  const size_t colons = words.rfind("::");
  const bool aten = words.starts_with("aten::");
  if (colons != std::string::npos && !aten) words.erase(0, colons + 2);
  return node ? words + " backward" : aten ? words.substr(6) : words;
}

double dtype_seconds(const std::vector<OperatorTime>& times, torch::ScalarType dtype) {
  double seconds = 0;
  for (const OperatorTime& time : times)
    if (time.dtype == dtype) seconds += time.self_seconds;
  return seconds;
}

}  // namespace redline::train
