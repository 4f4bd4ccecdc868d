#include "train/ranks/rank_group.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstring>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/ranks/backend.h"
#include "train/ranks/listen.h"

namespace redline::train {

namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

// One sentence of what c10d says: its messages carry a stack.
std::string short_reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return printable(text);
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, double seconds) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.timeout = to_milliseconds(seconds);
  options.waitWorkers = false;
  options.isServer = launch.ranks.rank == 0 && !launch.launcher_holds_store;
  std::string host = launch.address;
  if (options.isServer) {
    host = launch.one_host() ? "127.0.0.1" : own_address_towards(launch.address);
    options.masterListenFd = listen_on(host, options.port);
  }
  try {
    return c10::make_intrusive<c10d::PrefixStore>("redline/" + launch.token,
                                                  c10::make_intrusive<c10d::TCPStore>(host, options));
  } catch (const std::exception& error) {
    throw PeerLostError(fmt::format("Rank {} found no store at {}:{} within {}: {}", launch.ranks.rank, host,
                                    launch.port, format_seconds(seconds), short_reason(error)));
  }
}

void check_token(c10d::Store& store, const Launch& launch, const std::string& job) {
  const std::string mine = fmt::format("{} of {} ranks, job {}", launch.by, launch.ranks.world, job);
  // Rank 0's is the one that counts: a stranger leaves, and the job goes on waiting for its own.
  if (launch.ranks.rank == 0) store.set("token", mine);
  const std::string theirs = store.get_to_str("token");
  if (theirs != mine)
    throw ConfigError(fmt::format(
        "Rank {} belongs to another job than those it met at {}:{} (here: {}; there: {}). Two jobs need two ports "
        "(MASTER_PORT), and all ranks of one the same config and command line.",
        launch.ranks.rank, launch.address, launch.port, mine, printable(theirs)));
  if (store.add(fmt::format("here/{}", launch.ranks.rank), 1) != 1)
    throw ConfigError(fmt::format("Two processes say that they are rank {}.", launch.ranks.rank));
}

RankGroup::RankGroup(const Launch& launch, const c10::intrusive_ptr<c10d::Store>& store,
                     const RankGroupSettings& settings, Lost lost)
    : rank_(launch.ranks.rank), world_(launch.ranks.world), lost_(std::move(lost)) {
  guarded([&] {
    // What is small stays with Gloo also where gradients go through NCCL: numbers that the host decides by.
    control_ = make_process_group(store, "control", launch, "gloo", settings.join_seconds, 1);
    gradients_ = make_process_group(store, "gradients", launch, settings.backend, settings.join_seconds, 2);
    for (const auto& group : {control_, gradients_})
      group->getDefaultBackend()->setTimeout(to_milliseconds(settings.collective_seconds));
  });
}

RankGroup::~RankGroup() = default;

void RankGroup::guarded(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    lost_(short_reason(error));
    throw;  // not reached
  }
}

std::vector<double> RankGroup::gather(std::span<const double> mine) {
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(world_));
  if (count == 0) return all;
  const auto options = torch::TensorOptions(torch::kFloat64);
  std::vector<torch::Tensor> in{torch::from_blob(const_cast<double*>(mine.data()), {count}, options)};
  std::vector<std::vector<torch::Tensor>> out(1);
  for (int r = 0; r < world_; ++r) out[0].push_back(torch::from_blob(all.data() + r * count, {count}, options));
  guarded([&] { control_->allgather(out, in)->wait(); });
  return all;
}

void RankGroup::add_in_place(torch::Tensor& tensor) {
  REDLINE_CHECK(tensor.is_contiguous(), "what is added over ranks lies in one piece");
  std::vector<torch::Tensor> tensors{tensor};
  guarded([&] { control_->allreduce(tensors)->wait(); });
}

torch::Tensor RankGroup::join(const torch::Tensor& mine, const std::vector<double>& shapes) {
  int64_t most = 0, columns = 0;
  double type = -1.0;
  for (size_t r = 0; 3 * r < shapes.size(); ++r) {
    most = std::max(most, static_cast<int64_t>(shapes[3 * r]));
    columns = std::max(columns, static_cast<int64_t>(shapes[3 * r + 1]));
    type = std::max(type, shapes[3 * r + 2]);
  }
  if (most == 0) return {};
  const auto options = torch::TensorOptions(static_cast<torch::ScalarType>(static_cast<int>(type)));
  const std::vector<int64_t> shape = columns > 0 ? std::vector<int64_t>{most, columns} : std::vector<int64_t>{most};
  std::vector<torch::Tensor> in{torch::zeros(shape, options)};
  if (mine.defined()) in[0].narrow(0, 0, mine.size(0)).copy_(mine);
  std::vector<std::vector<torch::Tensor>> out(1);
  for (int r = 0; r < world_; ++r) out[0].push_back(torch::empty(shape, options));
  guarded([&] { control_->allgather(out, in)->wait(); });
  for (int r = 0; r < world_; ++r)
    out[0][static_cast<size_t>(r)] =
        out[0][static_cast<size_t>(r)].narrow(0, 0, static_cast<int64_t>(shapes[3 * static_cast<size_t>(r)]));
  return torch::cat(out[0]);
}

void RankGroup::follow_in_place(const std::vector<torch::Tensor>& tensors) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    std::vector<torch::Tensor> one{tensor.detach().contiguous()};
    guarded([&] { control_->broadcast(one)->wait(); });
    if (one[0].is_alias_of(tensor))
      tensor.unsafeGetTensorImpl()->bump_version();  // the group wrote into it without LibTorch's operators
    else
      torch::Tensor(tensor.detach()).copy_(one[0]);
  }
}

std::string RankGroup::follow(const std::string& mine) {
  const double own_size = static_cast<double>(mine.size());
  const auto size = static_cast<size_t>(gather({&own_size, 1})[0]);
  std::string text(size, '\0');
  if (rank_ == 0) text = mine;
  if (size == 0) return text;
  std::vector<torch::Tensor> bytes{torch::from_blob(text.data(), {static_cast<int64_t>(size)}, torch::kUInt8)};
  guarded([&] { control_->broadcast(bytes)->wait(); });
  return text;
}

void RankGroup::barrier() {
  const double nothing = 0.0;
  gather({&nothing, 1});
}

}  // namespace redline::train
