#include "data/nuscenes/token.h"

namespace redline::data::nuscenes {

namespace {

// 16 digits; false for anything but 0-9 and a-f.
bool parse_half(const char* text, uint64_t& value) {
  value = 0;
  for (int i = 0; i < 16; ++i) {
    const char c = text[i];
    const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                  : 16u;
    if (digit > 15) return false;
    value = value << 4 | digit;
  }
  return true;
}

}  // namespace

std::optional<Token> parse_token(std::string_view text) {
  Token token;
  if (text.size() != 32 || !parse_half(text.data(), token.high) || !parse_half(text.data() + 16, token.low))
    return std::nullopt;
  return token;
}

std::string Token::text() const {
  std::string out(32, '0');
  for (int i = 0; i < 32; ++i) {
    const uint64_t half = i < 16 ? high : low;
    out[static_cast<size_t>(i)] = "0123456789abcdef"[half >> (60 - 4 * (i % 16)) & 15];
  }
  return out;
}

}  // namespace redline::data::nuscenes
