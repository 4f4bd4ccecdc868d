#include "models/convnext/reference_names.h"

#include <gtest/gtest.h>

namespace redline::models::convnext {
namespace {

TEST(ReferenceNames, OfTheOriginalRepositoryBecomeTimms) {
  const std::map<std::string, std::string> expected{{"downsample_layers.0.0.weight", "stem.0.weight"},
                                                    {"downsample_layers.0.1.bias", "stem.1.bias"},
                                                    {"downsample_layers.2.0.weight", "stages.2.downsample.0.weight"},
                                                    {"downsample_layers.3.1.bias", "stages.3.downsample.1.bias"},
                                                    {"stages.0.0.gamma", "stages.0.blocks.0.gamma"},
                                                    {"stages.2.13.dwconv.weight", "stages.2.blocks.13.conv_dw.weight"},
                                                    {"stages.1.0.norm.bias", "stages.1.blocks.0.norm.bias"},
                                                    {"stages.1.0.pwconv1.weight", "stages.1.blocks.0.mlp.fc1.weight"},
                                                    {"stages.1.0.pwconv2.bias", "stages.1.blocks.0.mlp.fc2.bias"},
                                                    {"stages.1.0.grn.gamma", "stages.1.blocks.0.mlp.grn.weight"},
                                                    {"stages.1.0.grn.beta", "stages.1.blocks.0.mlp.grn.bias"},
                                                    {"norm.weight", "head.norm.weight"},
                                                    {"head.bias", "head.fc.bias"}};
  std::vector<std::string> names{"something.else"};
  for (const auto& [name, other] : expected) names.push_back(name);
  EXPECT_EQ(names_from_original(names), expected);
}

// Words that other models use as well mean nothing by themselves.
TEST(ReferenceNames, OtherFilesAreLeftAlone) {
  EXPECT_TRUE(names_from_original({"norm.weight", "head.weight", "stages.0.0.gamma"}).empty());
  EXPECT_TRUE(names_from_original({"stem.0.weight", "stages.0.blocks.0.gamma", "head.fc.bias"}).empty());
}

}  // namespace
}  // namespace redline::models::convnext
