// One list of fields serves writing and reading.
#include "measure/machine_json.h"

#include "core/error.h"
#include "core/strings.h"
#include "measure/strict_json.h"

namespace redline::measure {
namespace {

using OrderedJson = StrictOrderedJson;

template <class Facts, class Visit>
void visit_machine(Facts& facts, Visit visit) {
  visit("cpu_model", facts.cpu_model);
  visit("logical_cpus", facts.logical_cpus);
  visit("allowed_cpus", facts.allowed_cpus);
  visit("cgroup_cpu_quota", facts.cgroup_cpu_quota);
  visit("numa_nodes", facts.numa_nodes);
  visit("avx2", facts.avx2);
  visit("avx512f", facts.avx512f);
  visit("avx512_bf16", facts.avx512_bf16);
  visit("avx512_fp16", facts.avx512_fp16);
  visit("amx_bf16", facts.amx_bf16);
  visit("amx_int8", facts.amx_int8);
  visit("memory_bytes", facts.memory_bytes);
  visit("memory_limit_bytes", facts.memory_limit_bytes);
  visit("memory_available_bytes", facts.memory_available_bytes);
  visit("os", facts.os);
  visit("kernel", facts.kernel);
  visit("has_cuda", facts.has_cuda);
  visit("can_pin_memory", facts.can_pin_memory);
  visit_rates(facts, visit);
  visit("disk_kind", facts.disk_kind);
  visit("disk_read_gb_per_second", facts.disk_read_gb_per_second);
}

}  // namespace

std::string machine_to_json(const MachineFacts& facts) {
  OrderedJson json;
  json["schema_version"] = kMachineSchemaVersion;
  visit_machine(facts, [&](const char* name, const auto& value) { json[name] = value; });
  json["gpus"] = OrderedJson::array();
  for (const GpuFacts& gpu : facts.gpus)
    json["gpus"].push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

MachineFacts machine_from_json(const std::string& text, const std::string& name) {
  const std::string shown = "'" + printable(name) + "'";
  try {
    const OrderedJson json = OrderedJson::parse(text);
    if (json.at("schema_version") != kMachineSchemaVersion) {
      throw DataError(shown + " has version " + printable(json.at("schema_version").dump()) +
                      " of the machine facts, this redline reads " + std::to_string(kMachineSchemaVersion) +
                      "; use the redline that wrote it.");
    }
    MachineFacts facts;
    visit_machine(facts, [&](const char* key, auto& value) {
      if (json.contains(key)) json.at(key).get_to(value);
    });
    for (const auto& gpu : json.value("gpus", OrderedJson::array())) {
      facts.gpus.push_back({gpu.at("name").get<std::string>(), gpu.at("memory_bytes").get<uint64_t>()});
    }
    return facts;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(shown + " is no machine.json of redline: " + printable(error.what()) + ".");
  }
}

}  // namespace redline::measure
