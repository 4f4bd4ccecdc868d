// Names of facebookresearch/ConvNeXt (and ConvNeXt-V2) as timm's, which are ours.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace redline::models::convnext {

// Old name -> new name; empty unless the list is that of the original repository.
std::map<std::string, std::string> names_from_original(const std::vector<std::string>& names);

}  // namespace redline::models::convnext
