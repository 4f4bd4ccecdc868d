#include "models/register.h"

#include <gtest/gtest.h>

#include "config/schema_index.h"

namespace redline::models {
namespace {

// What an entry says about options is only text to the rooms that read it: here it must name rows that exist.
TEST(Register, TheOptionsAnEntryNamesExist) {
  task::Registry registry;
  register_all(registry);
  ASSERT_EQ(registry.entries().size(), 4u);
  for (const task::TaskEntry& entry : registry.entries()) {
    const auto config = entry.make_config();
    config::Schema schema;
    config->add_sections(schema);
    const config::SchemaIndex index(schema);
    EXPECT_EQ(index.find("model.monitor.no_such_option"), nullptr);
    EXPECT_EQ(entry.monitor_option.empty(), entry.monitor_plot_option.empty()) << entry.name;
    for (const std::string& path : {entry.monitor_option, entry.monitor_plot_option}) {
      if (path.empty()) continue;
      EXPECT_NE(index.find(path), nullptr) << entry.name << ": " << path;
    }
    EXPECT_FALSE(entry.guide_claims.empty()) << entry.name;
    for (const task::GuideClaim& claim : entry.guide_claims) {
      EXPECT_EQ(claim.from.empty(), claim.to.empty()) << entry.name << ": " << claim.field;
      EXPECT_EQ(claim.gain.front(), '+') << entry.name << ": " << claim.field;
    }
  }
  EXPECT_EQ(registry.find("sequence_vae").monitor_option, "model.monitor.update_frequency");
  EXPECT_EQ(registry.find("speech_ssl").guide_claims.front().text(), "+100-200 % (2 to 8)");
}

}  // namespace
}  // namespace redline::models
