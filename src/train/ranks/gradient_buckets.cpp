#include "train/ranks/gradient_buckets.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <atomic>
#include <limits>

#include "core/check.h"
#include "core/time.h"
#include "train/step/no_refusals.h"

namespace redline::train {

namespace {

constexpr int64_t kNoiseEvery = 16;  // passes: reading all gradients once more is not free

std::optional<torch::ScalarType> wire_type(const std::string& compression) {
  if (compression == "bf16") return torch::kBFloat16;
  if (compression == "fp16") return torch::kFloat16;
  return std::nullopt;
}

}  // namespace

class GradientBuckets::Hook : public c10d::CommHookInterface {
 public:
  struct Flight {
    int64_t bytes = 0, ready_ns = 0;
    std::atomic<int64_t> done_ns{0};  // set by the thread that brought it back, maybe after who waited went on
  };

  Hook(c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<torch::ScalarType> wire, measure::StepClock& clock)
      : group_(std::move(group)), wire_(wire), clock_(clock) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    if (own_squared) *own_squared += squared(bucket.getBufferRef());
    auto future = reduce(bucket.getBufferRef());
    whole = bucket.isLast();  // they go out in their order
    if (whole) {              // what is left of backward is waiting
      clock_.switch_to(measure::Phase::Reduce);
      measure::faults::at(measure::Phase::Reduce);
    }
    return future;
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

  c10::intrusive_ptr<c10::ivalue::Future> reduce(torch::Tensor& buffer) {
    const NoRefusals no_refusals;
    ++issued;
    std::vector<torch::Tensor> sent{wire_ ? buffer.to(*wire_) : buffer};
    auto future = group_->allreduce(sent)->getFuture();
    if (wire_)
      future = future->then(
          [buffer, sent = sent[0]](c10::ivalue::Future& done) {
            done.value();  // throws what the reduction threw
            torch::Tensor(buffer).copy_(sent);
            return c10::IValue(buffer);
          },
          c10::TensorType::get());
    const auto flight = std::make_shared<Flight>();
    flight->bytes = static_cast<int64_t>(sent[0].nbytes());
    flight->ready_ns = now_ns();
    future->addCallback([flight](c10::ivalue::Future& /*done*/) { flight->done_ns.store(now_ns()); });
    flights.push_back(flight);
    pending.push_back(future);
    return future;
  }
  void wait() {
    for (const auto& future : pending) future->waitAndThrow();
    pending.clear();
  }

  void begin(bool measures_own) {
    issued = 0;
    whole = false;
    pending.clear();
    flights.clear();
    own_squared.reset();
    if (measures_own) own_squared = 0.0;
  }

  size_t issued = 0;
  bool whole = false;  // all of this pass have gone out
  std::optional<double> own_squared;
  std::vector<std::shared_ptr<Flight>> flights;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> pending;

 private:
  static double squared(const torch::Tensor& buffer) {
    const torch::NoGradGuard no_grad;
    const NoRefusals no_refusals;
    const auto length = buffer.norm().item<double>();
    return length * length;
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::optional<torch::ScalarType> wire_;
  measure::StepClock& clock_;
};

GradientBuckets::GradientBuckets(RankGroup& group, torch::nn::Module& module, const BucketSettings& settings,
                                 measure::StepClock& clock)
    : group_(group), settings_(settings), clock_(clock), statistics_(group, clock) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    parameters_.push_back(item.value());
    names_.push_back(item.key());
  }
  note_gradients();
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::note_gradients() {
  came_ = std::make_shared<std::vector<char>>(parameters_.size(), 0);
  ever_came_ = std::make_shared<std::vector<char>>(parameters_.size(), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
    accumulators_.back()->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [came = came_, ever = ever_came_, i](const torch::autograd::variable_list& outputs,
                                             const torch::autograd::variable_list&) {
          (*came)[i] = (*ever)[i] = 1;
          return outputs;
        }));
  }
}

// At the end of backward, still inside it. c10d would look through the graph for this before every step; here the step
// itself has shown which are missing, and they count as zeros.
void GradientBuckets::mark_missing() {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if ((*came_)[i] == 0) reducer_->autograd_hook(i);
}

void GradientBuckets::build() {
  // Buckets are made anew after the first step, in the order in which gradients came; one will do until then.
  const std::vector<size_t> limits{static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  const std::vector<bool> sparse(parameters_.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());  // gradients come from the model's end
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < names_.size(); ++i) names[i] = names_[i];
  int64_t total = 0;
  for (const torch::Tensor& parameter : parameters_) total += static_cast<int64_t>(parameter.nbytes());
  const int64_t size = measure::bucket_bytes(total, settings_.bucket_bytes);
  // Its own search for unused parameters stays off: see mark_missing().
  reducer_ = std::make_unique<c10d::Reducer>(parameters_, std::move(buckets), group_.for_gradients(), sparse, size,
                                             /*find_unused_parameters=*/false, settings_.gradient_as_bucket_view,
                                             std::move(names), std::min(size, measure::kFirstBucketBytes),
                                             /*skip_all_reduce_unused_params=*/false,
                                             /*use_python_reducer=*/false, std::vector<int64_t>{});
  auto hook = std::make_unique<Hook>(group_.for_gradients(), wire_type(settings_.compression), clock_);
  hook_ = hook.get();
  reducer_->register_comm_hook(std::move(hook));
}

// Buckets, and what keeps others company, are not refused: a rank that has no memory for them could not even say so.
void GradientBuckets::begin() {
  const NoRefusals no_refusals;
  if (!reducer_) build();
  hook_->begin(passes_++ % kNoiseEvery == 2);  // not while buckets are made
  group_.guarded([&] { reducer_->rebuild_buckets(); });
  std::fill(ever_came_->begin(), ever_came_->end(), 0);
  statistics_.begin();
}

task::Collective* GradientBuckets::begin_piece(bool counts) {
  if (!settings_.sync_batchnorm) return nullptr;
  return statistics_.begin_piece(counts);
}

void GradientBuckets::last_backward(const torch::Tensor& loss, const std::function<void()>& backward) {
  std::fill(came_->begin(), came_->end(), 0);
  const int64_t begin_ns = now_ns();
  loss.register_hook([this](const torch::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { mark_missing(); });
    return gradient;
  });
  group_.guarded([&] {
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward({});
    backward();
  });
  REDLINE_CHECK(hook_->whole, "every bucket has gone out when backward ends");
  hook_->pending.clear();
  note_flights(begin_ns);
  if (settings_.find_unused) forget_unused();
}

void GradientBuckets::note_flights(int64_t begin_ns) {
  const int64_t end_ns = now_ns();
  timeline_.buckets.clear();
  for (const auto& flight : hook_->flights) {
    const int64_t done_ns = flight->done_ns.load();
    timeline_.buckets.push_back(
        {flight->bytes, flight->ready_ns - begin_ns, (done_ns != 0 ? done_ns : end_ns) - begin_ns});
    timeline_.backward_ns = flight->ready_ns - begin_ns;
  }
  timeline_.end_ns = end_ns - begin_ns;
  timeline_whole_ = true;
}

std::optional<double> GradientBuckets::own_squared() const {
  return hook_ != nullptr ? hook_->own_squared : std::nullopt;
}

void GradientBuckets::note_noise(double gradient_squared, double variance) {
  timeline_.gradient_squared = gradient_squared;
  timeline_.variance = variance;
}

void GradientBuckets::note_exchange(int64_t ns) {
  ++timeline_.exchanges;
  timeline_.exchange_ns += ns;
}

std::optional<measure::ReduceTimeline> GradientBuckets::take_timeline() {
  std::tie(timeline_.layer_sums, timeline_.layer_sum_ns) = statistics_.take_counts();
  measure::ReduceTimeline taken = std::exchange(timeline_, {});
  if (!std::exchange(timeline_whole_, false)) return std::nullopt;
  return taken;
}

// A gradient that no rank has is none, and not zeros: an optimiser leaves such a parameter alone.
void GradientBuckets::forget_unused() {
  const NoRefusals no_refusals;
  torch::Tensor used = torch::zeros({static_cast<int64_t>(parameters_.size())}, torch::kInt32);
  for (size_t i = 0; i < parameters_.size(); ++i) used.mutable_data_ptr<int32_t>()[i] = (*ever_came_)[i];
  exchange_used(used);
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (used.const_data_ptr<int32_t>()[i] == 0) parameters_[i].mutable_grad().reset();
}

void GradientBuckets::exchange_used(torch::Tensor& used) {
  std::vector<torch::Tensor> one{used};
  group_.guarded([&] { group_.for_gradients()->allreduce(one)->wait(); });
}

// What the others still wait for in this pass: buckets in their order, then the map of used parameters.
void GradientBuckets::reduce_zeros() {
  group_.guarded([&] {
    const auto buckets = reducer_->get_grad_buckets(/*return_zero_tensors=*/true);
    for (size_t i = hook_->issued; i < buckets.size(); ++i) {
      torch::Tensor zeros = buckets[i].getBuffer();
      hook_->reduce(zeros);
    }
    hook_->wait();
  });
  torch::Tensor used = torch::zeros({static_cast<int64_t>(parameters_.size())}, torch::kInt32);
  if (settings_.find_unused) exchange_used(used);
}

void GradientBuckets::keep_company(bool last, const std::function<void()>& between) {
  const NoRefusals no_refusals;
  if (settings_.sync_batchnorm)
    statistics_.keep_company(between);
  else
    between();
  if (last) reduce_zeros();
}

// A pass that was given up leaves a reducer half way, on some ranks; a new one is the same on all.
void GradientBuckets::abandon() {
  reducer_.reset();
  hook_ = nullptr;
}

}  // namespace redline::train
