// A profile is one small JSON object under the user's cache. The name carries a hash of what the rates depend on, the
// text of it is compared too.
#include "device/profile.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/machine.h"
#include "device/threads.h"

namespace redline::device {
namespace {

constexpr int kProfileVersion = 1;

RateReport profile_from_json(const std::string& text, MachineFacts& facts) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("schema_version") != kProfileVersion) throw DataError("it is of another version");
    if (json.at("machine") != profile_key(facts)) throw DataError("it is another machine's");
    MachineFacts read = facts;
    visit_rates(read, [&](const char* name, double& rate) { json.at("rates").at(name).get_to(rate); });
    RateReport report;
    json.at("measured_at").get_to(report.measured_at);
    json.at("measuring_cpu_share").get_to(report.cpu_share);
    json.at("notes").get_to(report.notes);
    if (const std::string problem = rates_problem(read); !problem.empty()) throw DataError(problem);
    facts = read;
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("it cannot be read (") + error.what() + ")");
  }
}

void save_profile(const MachineFacts& facts, const RateReport& report) {
  const std::filesystem::path path = profile_path(facts);
  if (path.empty()) return;
  nlohmann::ordered_json json{{"schema_version", kProfileVersion},         {"machine", profile_key(facts)},
                              {"measured_at", report.measured_at},         {"measuring_cpu_share", report.cpu_share},
                              {"rates", nlohmann::ordered_json::object()}, {"notes", report.notes}};
  visit_rates(facts, [&](const char* name, double rate) { json["rates"][name] = rate; });
  try {
    posix_file_ops().make_directory(path.parent_path());
    write_file_atomic(path, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } catch (const DiskError& error) {
    log_debug(std::string("The machine profile is not kept: ") + error.what());  // a cache is a convenience
  }
}

}  // namespace

// What the rates depend on. The instruction set is LibTorch's choice, which ATEN_CPU_CAPABILITY lowers.
std::string profile_key(const MachineFacts& facts) {
  return fmt::format(
      "{}, {} of {} cores, quota {:.2f}, avx2 {:d} avx512 {:d} bf16 {:d} fp16 {:d} amx {:d}, {}, LibTorch {}",
      facts.cpu_model, facts.allowed_cpus, facts.logical_cpus, facts.cgroup_cpu_quota, facts.avx2, facts.avx512f,
      facts.avx512_bf16, facts.avx512_fp16, facts.amx_bf16, instruction_set(), TORCH_VERSION);
}

std::string rates_problem(const MachineFacts& facts) {
  bool all = true;
  visit_rates(facts, [&](const char*, double rate) { all = all && std::isfinite(rate) && rate >= 0; });
  if (!all || facts.gemm_fp32_gflops <= 0 || facts.conv_fp32_gflops <= 0 || facts.memory_gb_per_second <= 0 ||
      facts.elementwise_g_per_second <= 0)
    return "not every rate was measured";
  // A core with AVX2 does 32 fp32 operations a cycle or more, without it 8; at 2 GHz a twentieth of that is left to the
  // slowest clock and the worst library. Above, AVX-512 does 64 at no more than 6 GHz.
  const double cores = facts.allowed_cpus, fp32 = facts.gemm_fp32_gflops;
  const double least = cores * (facts.avx2 ? 3.2 : 0.8), most = facts.logical_cpus * 400.0;
  if (fp32 < least || fp32 > most)
    return fmt::format("fp32 matrix products at {:.2g} GFLOP/s cannot be {} core{} {} AVX2 ({:.0f} to {:.0f})", fp32,
                       facts.allowed_cpus, facts.allowed_cpus == 1 ? "" : "s", facts.avx2 ? "with" : "without", least,
                       most);
  // Without units a half is widened, multiplied as fp32 and narrowed again: it cannot win. With them it does not lose
  // by much.
  const auto halves = [&](const char* name, double rate, bool units) -> std::string {
    if (rate <= 0) return {};  // LibTorch has no kernel for it
    if (!units && rate > 1.1 * fp32)
      return fmt::format(
          "{} matrix products at {:.0f} GFLOP/s beside fp32 at {:.0f} cannot be a processor without {} "
          "units",
          name, rate, fp32, name);
    if (units && rate < 0.25 * fp32)
      return fmt::format(
          "{} matrix products at {:.0f} GFLOP/s beside fp32 at {:.0f} cannot be a processor with {} "
          "units",
          name, rate, fp32, name);
    return {};
  };
  if (std::string problem = halves("bf16", facts.gemm_bf16_gflops, has_bf16_units(facts)); !problem.empty())
    return problem;
  return halves("fp16", facts.gemm_fp16_gflops, has_fp16_units(facts));
}

void clear_rates(MachineFacts& facts) {
  visit_rates(facts, [](const char*, double& rate) { rate = 0; });
}

std::filesystem::path profile_path(const MachineFacts& facts) {
  std::filesystem::path cache;
  if (const char* given = std::getenv("XDG_CACHE_HOME"); given != nullptr && given[0] == '/') {
    cache = given;  // the specification says to ignore relative ones
  } else if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    cache = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  return cache / "redline" / ("machine-" + hex64(hash64(profile_key(facts))) + ".json");
}

std::optional<RateReport> load_profile(MachineFacts& facts) {
  const std::filesystem::path path = profile_path(facts);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    constexpr size_t kLargest = size_t{1} << 20;
    return profile_from_json(read_file(path, kLargest), facts);
  } catch (const Error& error) {
    log_warning_once(fmt::format("The machine profile {} is ignored: {}. `redline machine --measure` makes it anew.",
                                 path.string(), error.what()));
    return std::nullopt;
  }
}

RateReport measure_profile(MachineFacts& facts, const RateOptions& options) {
  RateReport report;
  constexpr int kTries = 2;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    report = measure_rates(facts, options);
    if (!report.problem.empty()) continue;
    save_profile(facts, report);
    return report;
  }
  return report;
}

bool read_or_measure_rates(MachineFacts& facts) {
  if (load_profile(facts)) return true;
  const RateReport report = measure_profile(facts);
  if (report.problem.empty()) return true;
  clear_rates(facts);
  log_warning(fmt::format(
      "How fast this machine is could not be measured: {}. Nothing is said about precisions; run `redline machine "
      "--measure` when nothing else runs.",
      report.problem));
  return false;
}

}  // namespace redline::device
