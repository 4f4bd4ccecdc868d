// The example of docs/new_option.md; new_option_test.cpp compiles it and checks that the page shows the same lines.
#pragma once

// [begin struct]
#include "config/fields.h"
#include "core/machine_facts.h"

namespace redline::data {

struct EchoConfig {
  config::Auto<int> echo_factor;          // auto: chosen by resolve()
  std::string order = "plan";             // default: the initialiser
  std::optional<double> max_age_seconds;  // null: no limit
  static config::Table<EchoConfig> fields();
  void resolve(const MachineFacts& machine);
};

}  // namespace redline::data
// [end struct]

// [begin table]
namespace redline::data {

inline config::Table<EchoConfig> EchoConfig::fields() {
  config::Table<EchoConfig> t;
  t.about("Uses a decoded batch more than once.");
  t.add("echo_factor", &EchoConfig::echo_factor, "How often a decoded batch is used before the next is read.")
      .range(1, 16)
      .effect(config::Effect::Order)
      .tunable({"1", "2", "4"})
      .flag("echo")
      .alias("repeat_batches")
      .bool_alias(
          ".use_echo",
          [](const config::Node& value) { return config::Node::scalar(value.as_bool().value_or(false) ? "2" : "1"); },
          "true is 2");
  t.add("order", &EchoConfig::order, "Order of the repetitions.")
      .choices({"plan", "shuffled"})
      .effect(config::Effect::Order);
  t.add("max_age_seconds", &EchoConfig::max_age_seconds, "A batch older than this is read again.")
      .unit("seconds")
      .above(0);
  return t;
}

inline void EchoConfig::resolve(const MachineFacts& machine) {
  if (echo_factor.is_auto()) echo_factor.set(machine.disk_kind == "network" ? 2 : 1);
}

}  // namespace redline::data
// [end table]
