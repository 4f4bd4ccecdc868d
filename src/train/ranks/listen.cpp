#include "train/ranks/listen.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace redline::train {

namespace {
constexpr int kWaitingConnections = 1024;
}

int listen_on(const std::string& address, uint16_t& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw DeviceError(fmt::format("'{}' is no address to listen on.", address));
  const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (descriptor >= 0) ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = descriptor >= 0 && ::bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                     ::listen(descriptor, kWaitingConnections) == 0;
  const int problem = errno;
  freeaddrinfo(found);
  if (!bound) {
    if (descriptor >= 0) ::close(descriptor);
    throw DeviceError(
        fmt::format("Rank 0 cannot listen at {}:{} ({}); another job may have that port: choose another MASTER_PORT.",
                    address, port, std::strerror(problem)));
  }
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size);
  port = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  return descriptor;
}

}  // namespace redline::train
