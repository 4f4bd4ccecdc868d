// The interchangeable inner loops of CRC32C, visible so that tests can hold each against the plain one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace redline::detail {

// State in, state out: without the inversion at both ends that the checksum has.
uint32_t crc32c_table(const uint8_t* data, size_t size, uint32_t state);
uint32_t crc32c_sse42(const uint8_t* data, size_t size, uint32_t state);  // only when has_sse42()
bool has_sse42();

}  // namespace redline::detail
