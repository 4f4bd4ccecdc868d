// A listening socket on one address and no other.
#pragma once

#include <cstdint>
#include <string>

namespace redline::train {

// `port` 0: any free one, which it then is. Throws DeviceError that says who may have the port.
int listen_on(const std::string& address, uint16_t& port);

}  // namespace redline::train
