// The ten seconds of a page: what became of a run, in a few large figures.
#pragma once

#include <string>
#include <vector>

#include "report/page.h"

namespace redline::report {

struct Tile {
  std::string title, value, detail;  // plain text
  bool good = true;                  // false: marked
};

// How the run ended, loss and validation, time, speed with its interval, batch and precision, memory, when.
std::vector<Tile> run_tiles(const RunPart& run);
std::string draw_tiles(const std::vector<Tile>& tiles);

}  // namespace redline::report
