// A record with its diagnosis, and a page on its way to the user: what doctor, report and compare share.
#pragma once

#include <string>
#include <vector>

#include "app/command.h"
#include "report/page.h"

namespace redline::app {

// Rank 0's record and those of the ranks that trained with it to its end.
std::vector<measure::RunRecord> read_ranks(const std::string& directory);
report::RunPart read_part(const std::string& directory);
// As text or JSON, and as a file where `html` names one.
void print_page(const report::Page& page, const Globals& globals, const std::string& html);

}  // namespace redline::app
