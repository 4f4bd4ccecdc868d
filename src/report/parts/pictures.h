// What a run's monitors drew (RUN/plots/*.png), inside the page.
#pragma once

#include <filesystem>
#include <string>

namespace redline::report {

// Empty when there are none. Files that are no PNG, or too large for a page, are left out.
std::string pictures_html(const std::filesystem::path& run_directory, const std::string& run_name);

// RFC 4648, with padding.
std::string base64(const std::string& bytes);

}  // namespace redline::report
