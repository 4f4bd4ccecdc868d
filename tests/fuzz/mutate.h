// Random damage, the kind that breaks parsers: flipped bits, wrong numbers in either byte order, cut, doubled, moved
// and foreign pieces.
#pragma once

#include <span>
#include <string>

#include "core/philox.h"

namespace redline::fuzz {

// A mutation of one of the seeds; a function of the stream alone.
std::string mutate(std::span<const std::string> seeds, KeyedStream& draw);

}  // namespace redline::fuzz
