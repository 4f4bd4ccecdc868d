// The noise of blocks: one part is new in every block, another wanders with the machine and stays for a while, so eight
// blocks in a row know less than eight times one. Both parts are estimated from all blocks of a search together
// (restricted maximum likelihood over a few shares of the slow part, with a prior worth a handful of blocks). A block
// that something else held up counts for less the further off it is.
#pragma once

#include <vector>

namespace redline::tune {

// Blocks of one pairing that came close enough in time to share the slow noise.
struct Stretch {
  std::vector<int> times;       // in blocks of the whole search
  std::vector<double> values;   // log ratios
  std::vector<double> weights;  // below one for a block that surprised; three blocks know themselves which is off
};

inline constexpr double kSlowStays = 0.8;  // of the slow part, from one block to the next

struct BlockNoise {
  double variance = 0.05 * 0.05;  // of a block's log ratio
  double slow = 0.3;              // of that variance: what stays
  double freedom = 4;             // how well the variance is known, in blocks
};

BlockNoise fit_noise(const std::vector<Stretch>& stretches);

// What a stretch says of its pairing's log ratio.
struct StretchSummary {
  double mean = 0, information = 0;  // 1 / variance
};
StretchSummary summarise(const Stretch& stretch, const BlockNoise& noise);

// The information that a stretch would have with `more` blocks right after it (or, empty, of that many blocks).
double information_after(const Stretch& stretch, int more, const BlockNoise& noise);

}  // namespace redline::tune
