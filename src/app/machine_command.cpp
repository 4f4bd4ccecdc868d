// redline machine: what this machine has and how fast it really is, as a table with words or as JSON.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/disk.h"
#include "device/machine.h"
#include "device/precision_choice.h"
#include "device/profile.h"
#include "device/threads.h"
#include "measure/machine_json.h"

namespace redline::app {

void add_machine_command(CLI::App& program, const Globals& globals);

namespace {

struct MachineArguments {
  std::string path;
  bool quick = false, measure = false;
};

struct MachineAnswer {
  MachineFacts facts;
  std::optional<device::DiskFacts> disk;
  std::string disk_path;
  std::vector<std::string> words;
  device::RateReport report;
  std::filesystem::path profile;  // where these rates are kept; empty: they are not
};

device::RateReport read_rates(MachineAnswer& answer, const MachineArguments& arguments) {
  MachineFacts& facts = answer.facts;
  std::optional<device::RateReport> report;
  if (!arguments.measure) report = device::load_profile(facts);
  if (!report) {
    log_info("Measuring matrix products, convolutions and memory ...");
    if (arguments.quick) {
      device::RateOptions options;
      options.seconds_per_probe = 0.05;
      return device::measure_rates(facts, options);
    }
    report = device::measure_profile(facts);
  }
  std::error_code ignored;
  if (report->problem.empty() && std::filesystem::exists(device::profile_path(facts), ignored))
    answer.profile = device::profile_path(facts);
  return *report;
}

// What 16-mixed means here is part of what a user must know to compare runs, so it is said with its reason.
std::string precision_words(const MachineFacts& facts) {
  const auto choice = device::choose_precision(Precision::Fp16Mixed, /*strict=*/false, facts, !facts.has_cuda);
  return fmt::format("trainer.precision 16-mixed runs as {} here: that follows the {}, never what was measured.",
                     precision_name(choice.precision), facts.has_cuda ? "GPU" : "processor's units");
}

MachineAnswer measure_machine(const MachineArguments& arguments) {
  MachineAnswer answer;
  answer.facts = device::read_machine_facts();
  // A wrong path is said before seconds are spent on rates.
  if (!arguments.path.empty() || !arguments.quick) {
    answer.disk_path = arguments.path.empty() ? "." : arguments.path;
    device::DiskOptions options;
    if (arguments.quick) options = {0.2, uint64_t{64} << 20};
    log_info("Measuring the disk of '" + answer.disk_path + "' ...");
    answer.disk = device::measure_disk(answer.disk_path, options);
    answer.facts.disk_kind = answer.disk->kind;
    answer.facts.disk_read_gb_per_second = answer.disk->read_gb_per_second;
  }
  answer.report = read_rates(answer, arguments);
  answer.words = device::machine_words(answer.facts, answer.report.problem);
  answer.words.push_back(precision_words(answer.facts));
  return answer;
}

std::string units_text(const MachineFacts& facts) {
  std::vector<std::string> units;
  const auto list = [&](bool there, const char* name) {
    if (there) units.emplace_back(name);
  };
  list(facts.avx2, "AVX2");
  list(facts.avx512f, "AVX-512");
  list(facts.avx512_bf16, "AVX-512 BF16");
  list(facts.avx512_fp16, "AVX-512 FP16");
  list(facts.amx_bf16, "AMX BF16");
  list(facts.amx_int8, "AMX INT8");
  return units.empty() ? "no AVX2" : join(units, ", ");
}

std::string rate_cell(double gflops) {
  if (gflops <= 0) return "-";
  return gflops < 10 ? fmt::format("{:.1f}", gflops) : fmt::format("{:.0f}", gflops);
}

void print_table(const MachineAnswer& answer) {
  const MachineFacts& facts = answer.facts;
  const auto row = [](const char* name, const std::string& text) { fmt::print("{:<18}{}\n", name, printable(text)); };
  const auto rates = [](const char* name, double fp32, double bf16, double fp16) {
    fmt::print("{:<18}{:>8}{:>8}{:>8}  GFLOP/s\n", name, rate_cell(fp32), rate_cell(bf16), rate_cell(fp16));
  };
  row("CPU", facts.cpu_model);
  row("cores",
      fmt::format("{} usable of {}{}", facts.allowed_cpus, facts.logical_cpus,
                  facts.cgroup_cpu_quota > 0 ? fmt::format(", cgroup quota {:.2f}", facts.cgroup_cpu_quota) : ""));
  row("vector units", units_text(facts) + "; LibTorch uses " + device::instruction_set());
  row("NUMA nodes", std::to_string(facts.numa_nodes));
  row("memory", fmt::format("{}, limit {}, available {}", format_bytes(facts.memory_bytes),
                            format_bytes(facts.memory_limit_bytes), format_bytes(facts.memory_available_bytes)));
  row("system", facts.os + ", Linux " + facts.kernel);
  if (facts.gpus.empty()) row("GPU", "none that LibTorch sees");
  for (const GpuFacts& gpu : facts.gpus) row("GPU", gpu.name + ", " + format_bytes(gpu.memory_bytes));
  fmt::print("\n{:<18}{:>8}{:>8}{:>8}\n", "measured", "fp32", "bf16", "fp16");
  rates("matrix product", facts.gemm_fp32_gflops, facts.gemm_bf16_gflops, facts.gemm_fp16_gflops);
  rates("convolution", facts.conv_fp32_gflops, facts.conv_bf16_gflops, facts.conv_fp16_gflops);
  fmt::print("{:<18}{:>8.1f}  GB/s\n{:<18}{:>8.2f}  G elements/s (fp32)\n", "memory", facts.memory_gb_per_second,
             "elementwise", facts.elementwise_g_per_second);
  if (answer.disk) {
    fmt::print("{:<18}{:>8.2f}  GB/s ({}, {}; {})\n", "disk", answer.disk->read_gb_per_second, answer.disk->kind,
               printable(answer.disk->filesystem), answer.disk->how);
  }
  if (!answer.profile.empty())
    fmt::print("measured {}, kept in {} (--measure makes it anew)\n", answer.report.measured_at,
               printable(answer.profile.string()));
  fmt::print("\nIn words\n");
  for (const std::string& sentence : answer.words) fmt::print("- {}\n", printable(sentence));
  for (const std::string& note : answer.report.notes) fmt::print("- {}\n", printable(note));
}

void print_json(const MachineAnswer& answer) {
  auto json = nlohmann::ordered_json::parse(measure::machine_to_json(answer.facts));
  json["instruction_set"] = device::instruction_set();
  if (answer.disk) {
    json["disk"] = {{"path", answer.disk_path},
                    {"kind", answer.disk->kind},
                    {"filesystem", answer.disk->filesystem},
                    {"read_gb_per_second", answer.disk->read_gb_per_second},
                    {"bytes_read", answer.disk->bytes_read},
                    {"how", answer.disk->how}};
  }
  json["measuring_cpu_share"] = answer.report.cpu_share;
  json["rates_measured_at"] = answer.report.measured_at;
  json["rates_problem"] = answer.report.problem;
  json["rates_kept"] = !answer.profile.empty();  // not where: answers are passed on, and a path names a user
  json["words"] = answer.words;
  json["notes"] = answer.report.notes;
  fmt::print("{}\n", json_text(json, 2));
}

}  // namespace

void add_machine_command(CLI::App& program, const Globals& globals) {
  CLI::App* command =
      program.add_subcommand("machine", "What this machine has and how fast it is, measured in a few seconds");
  const auto arguments = std::make_shared<MachineArguments>();
  command->add_option("--path", arguments->path, "File or folder whose disk is measured (default: the current folder)");
  CLI::Option* quick = command->add_flag("--quick", arguments->quick,
                                         "Shorter measurements that are not kept, and the disk only with --path");
  command->add_flag("--measure", arguments->measure, "Measure the rates anew instead of reading the machine's profile")
      ->excludes(quick);
  command->callback([arguments, &globals] {
    const MachineAnswer answer = measure_machine(*arguments);
    globals.json ? print_json(answer) : print_table(answer);
  });
}

}  // namespace redline::app
