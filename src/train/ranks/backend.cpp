// Gloo's headers are Debian's and older than the Gloo inside LibTorch; only what has not changed since is used: opaque
// devices, and an options object of c10d's own. Its library is not linked.
#define USE_C10D_GLOO
#include "train/ranks/backend.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

std::string own_address_towards(const std::string& peer) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(peer.c_str(), "9", &hints, &found) != 0)
    throw ConfigError(fmt::format("MASTER_ADDR is '{}', which is no name or address that this machine knows.", peer));
  std::string own;
  for (addrinfo* at = found; at != nullptr && own.empty(); at = at->ai_next) {
    // Nothing is sent: connecting a datagram socket only chooses the interface.
    const int descriptor = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    char text[NI_MAXHOST] = "";
    if (descriptor >= 0 && ::connect(descriptor, at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&name), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      own = text;
    if (descriptor >= 0) ::close(descriptor);
  }
  freeaddrinfo(found);
  if (own.empty()) throw ConfigError(fmt::format("This machine has no network towards MASTER_ADDR '{}'.", peer));
  // Distributions like to map a machine's own name to 127.0.1.1: what listens there no other machine reaches.
  if (starts_with(own, "127.") || own == "::1")
    throw ConfigError(
        fmt::format("MASTER_ADDR '{}' is {} on this machine, which no other machine reaches. Give the address of rank "
                    "0's machine in the network that joins them.",
                    printable(peer), own));
  return own;
}

namespace {

using c10d::ProcessGroup;

std::shared_ptr<::gloo::transport::Device> gloo_device(const Launch& launch) {
  if (launch.one_host()) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr && *interface != '\0')
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  return c10d::ProcessGroupGloo::createDeviceForHostname(own_address_towards(launch.address));
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::string& name, const Launch& launch,
                                                    const std::string& backend, double timeout_seconds, int threads) {
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout_seconds));
  const auto own = c10::make_intrusive<c10d::PrefixStore>(name, store);
  auto group = c10::make_intrusive<ProcessGroup>(own, launch.ranks.rank, launch.ranks.world);
  if (backend == "nccl") {
#ifdef USE_C10D_NCCL  // not tested: no machine with GPUs was there
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(own, launch.ranks.rank, launch.ranks.world);
    group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
    group->setBackend(c10::DeviceType::CUDA, ProcessGroup::BackendType::NCCL, nccl);
    return group;
#else
    throw ConfigError("trainer.strategy.process_group_backend is nccl, which this LibTorch does not have; use gloo.");
#endif
  }
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(gloo_device(launch));
  options->threads = threads;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(own, launch.ranks.rank, launch.ranks.world, options);
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO, gloo);
  return group;
}

}  // namespace redline::train
