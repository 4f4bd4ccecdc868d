#include "mutate.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace redline::fuzz {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

// Headers and footers are where the decisions are: three mutations in four strike there.
size_t choose_place(const std::string& bytes, KeyedStream& draw) {
  const auto last = static_cast<int64_t>(bytes.size()) - 1;
  const double where = draw.uniform();
  if (where < 0.45) return static_cast<size_t>(draw.uniform_int(0, std::min<int64_t>(last, 127)));
  if (where < 0.75) return static_cast<size_t>(draw.uniform_int(std::max<int64_t>(0, last - 511), last));
  return static_cast<size_t>(draw.uniform_int(0, last));
}

void put_number(std::string& bytes, KeyedStream& draw) {
  static constexpr std::array<uint64_t, 18> kNumbers{0,
                                                     1,
                                                     2,
                                                     0x7F,
                                                     0x80,
                                                     0xFF,
                                                     0x100,
                                                     0x7FFF,
                                                     0x8000,
                                                     0xFFFF,
                                                     0x10000,
                                                     0x7FFFFFFF,
                                                     0x80000000,
                                                     0xFFFFFFFF,
                                                     0x100000000,
                                                     0x7FFFFFFFFFFFFFFF,
                                                     0x8000000000000000,
                                                     0xFFFFFFFFFFFFFFFF};
  const size_t at = choose_place(bytes, draw);
  const size_t width = std::min<size_t>(size_t{1} << draw.uniform_int(0, 3), bytes.size() - at);
  uint64_t value = kNumbers[static_cast<size_t>(draw.uniform_int(0, kNumbers.size() - 1))];
  if (draw.uniform() < 0.3) {  // a little more or less than what is there
    value = 0;
    std::memcpy(&value, bytes.data() + at, width);
    value += static_cast<uint64_t>(draw.uniform_int(-16, 16));
  }
  const bool big = draw.uniform() < 0.5;
  for (size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<char>(value >> (8 * (big ? width - 1 - i : i)));
}

void change_once(std::string& bytes, std::span<const std::string> seeds, KeyedStream& draw) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<char>(draw.next_u32()));
    return;
  }
  const size_t at = choose_place(bytes, draw);
  const auto length =
      static_cast<size_t>(draw.uniform_int(1, std::min<int64_t>(64, static_cast<int64_t>(bytes.size() - at))));
  switch (draw.uniform_int(0, 9)) {
    case 0:
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw.uniform_int(0, 7)));
      return;
    case 2:
      bytes[at] = static_cast<char>(draw.next_u32());
      return;
    case 3:
    case 4:
    case 5:
      return put_number(bytes, draw);
    case 6:
      bytes.erase(at, length);
      return;
    case 7:
      if (bytes.size() < kMaxBytes) bytes.insert(at, bytes.substr(at, length));
      return;
    case 8:
      bytes.resize(at);
      return;
    default: {  // a piece of another file
      const std::string& other =
          seeds[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(seeds.size()) - 1))];
      const size_t from = static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(other.size())));
      bytes.replace(at, length, other.substr(from, length));
    }
  }
}

}  // namespace

std::string mutate(std::span<const std::string> seeds, KeyedStream& draw) {
  std::string bytes = seeds[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(seeds.size()) - 1))];
  const int64_t changes = draw.uniform() < 0.5 ? 1 : draw.uniform_int(2, 6);
  for (int64_t i = 0; i < changes; ++i) change_once(bytes, seeds, draw);
  return bytes;
}

}  // namespace redline::fuzz
