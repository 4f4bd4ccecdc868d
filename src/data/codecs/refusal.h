// Why a decoder would not take a file, without the sample's name (the caller adds it). A clause after "x.wav: ", e.g.
// "it has 0 bytes".
#pragma once

#include <string>

namespace redline::data::codecs {

struct Refusal {
  std::string reason;
};

}  // namespace redline::data::codecs
