// Inside the safetensors header: text to entries, before any check that looks at more than one value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/safetensors_header.h"

namespace redline {

StoredHeader parse_header_text(std::string_view text, const std::string& file_name);

[[noreturn]] void refuse_header(const std::string& file_name, const std::string& what);
std::string shortened_name(std::string_view name);  // printable, cut where a message would drown in it
std::optional<StoredType> find_stored_type(std::string_view name);

}  // namespace redline
