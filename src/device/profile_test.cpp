#include "device/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/cores.h"
#include "core/file_ops.h"
#include "core/own_folder.h"
#include "core/time.h"
#include "device/host/busy_cores.h"
#include "device/machine.h"

namespace redline::device {
namespace {

using ::testing::HasSubstr;

MachineFacts zen4_pair() {
  MachineFacts facts;
  facts.cpu_model = "a processor";
  facts.logical_cpus = facts.allowed_cpus = 2;
  facts.avx2 = facts.avx512f = facts.avx512_bf16 = true;
  facts.gemm_fp32_gflops = 204;
  facts.gemm_bf16_gflops = 330;
  facts.gemm_fp16_gflops = 4;
  facts.conv_fp32_gflops = 150;
  facts.conv_bf16_gflops = 210;
  facts.conv_fp16_gflops = 3;
  facts.memory_gb_per_second = 20;
  facts.elementwise_g_per_second = 3;
  return facts;
}

// A home of its own, so that a test neither reads nor writes the user's.
class CacheHome {
 public:
  CacheHome() {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~CacheHome() {
    if (before_.empty())
      unsetenv("XDG_CACHE_HOME");
    else
      setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }
  CacheHome(const CacheHome&) = delete;
  CacheHome& operator=(const CacheHome&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  OwnFolder folder_ = OwnFolder::temporary("profile-test");
  std::string before_;
};

std::string warning_of(MachineFacts& facts, std::optional<RateReport>& loaded) {
  ::testing::internal::CaptureStderr();
  loaded = load_profile(facts);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Profile, OnlyRatesTheUnitsCanReachArePlausible) {
  EXPECT_EQ(rates_problem(zen4_pair()), "");
  struct ImplausibleCase {
    const char* name;
    void (*change)(MachineFacts&);
    const char* said;
  };
  for (const ImplausibleCase& c : {
           ImplausibleCase{"not measured", [](MachineFacts& f) { clear_rates(f); }, "not every rate"},
           ImplausibleCase{"no memory rate", [](MachineFacts& f) { f.memory_gb_per_second = 0; }, "not every rate"},
           ImplausibleCase{"not a number", [](MachineFacts& f) { f.conv_bf16_gflops = std::nan(""); },
                           "not every rate"},
           ImplausibleCase{"starved fp32", [](MachineFacts& f) { f.gemm_fp32_gflops = 0.29; },
                           "0.29 GFLOP/s cannot be 2 cores"},
           ImplausibleCase{"impossible fp32", [](MachineFacts& f) { f.gemm_fp32_gflops = 5000; }, "cannot be 2 cores"},
           ImplausibleCase{"fp16 wins without units", [](MachineFacts& f) { f.gemm_fp16_gflops = 230; },
                           "without fp16 units"},
           ImplausibleCase{"bf16 wins without units", [](MachineFacts& f) { f.avx512_bf16 = false; },
                           "without bf16 units"},
           ImplausibleCase{"bf16 starved", [](MachineFacts& f) { f.gemm_bf16_gflops = 20; }, "with bf16 units"},
       }) {
    MachineFacts facts = zen4_pair();
    c.change(facts);
    EXPECT_THAT(rates_problem(facts), HasSubstr(c.said)) << c.name;
  }
  MachineFacts lacking = zen4_pair();
  lacking.gemm_fp16_gflops = lacking.conv_fp16_gflops = 0;  // a kernel LibTorch lacks
  EXPECT_EQ(rates_problem(lacking), "");
}

TEST(Profile, IsKeptReadBackAndNeverPoisoned) {
  const CacheHome home;
  MachineFacts facts = read_machine_facts();
  EXPECT_EQ(profile_path(facts).parent_path(), home.path() / "redline");
  std::optional<RateReport> loaded;
  EXPECT_EQ(warning_of(facts, loaded), "");  // none yet: nothing to say
  EXPECT_FALSE(loaded);

  // On a busy machine the measurement is not kept; then there is nothing to read back, which is the point.
  const RateReport report = measure_profile(facts, {0.02, 0});
  EXPECT_EQ(std::filesystem::exists(profile_path(facts)), report.problem.empty()) << report.problem;
  if (report.problem.empty()) {
    MachineFacts again = read_machine_facts();
    const auto kept = load_profile(again);
    ASSERT_TRUE(kept);
    EXPECT_EQ(again.gemm_fp32_gflops, facts.gemm_fp32_gflops);
    EXPECT_EQ(again.elementwise_g_per_second, facts.elementwise_g_per_second);
    EXPECT_EQ(kept->measured_at, report.measured_at);
  }
}

// Written by hand, so that the test does not depend on how busy the machine is.
std::string profile_text(double fp32, const std::string& machine) {
  std::string rates = "\"gemm_fp32_gflops\": " + std::to_string(fp32);
  for (const char* name : {"gemm_bf16_gflops", "gemm_fp16_gflops", "conv_bf16_gflops", "conv_fp16_gflops"})
    rates += ", \"" + std::string(name) + "\": 0";  // no kernels: plausible whatever the units
  rates += ", \"conv_fp32_gflops\": 100, \"memory_gb_per_second\": 10, \"elementwise_g_per_second\": 2";
  return "{\"schema_version\": 1, \"machine\": \"" + machine +
         "\", \"measured_at\": \"2026-11-17T22:00:00Z\", \"measuring_cpu_share\": 0.97, \"notes\": [\"a note\"], "
         "\"rates\": {" +
         rates + "}}";
}

TEST(Profile, ADamagedOrPoisonedFileIsIgnoredWithALine) {
  const CacheHome home;
  const MachineFacts machine = read_machine_facts();
  const std::filesystem::path path = profile_path(machine);
  std::filesystem::create_directories(path.parent_path());
  const std::string key = profile_key(machine);
  struct DamagedCase {
    std::string text;
    const char* said;  // null = read
  };
  const double good = 50.0 * machine.allowed_cpus;
  for (const DamagedCase& c :
       {DamagedCase{profile_text(good, key), nullptr}, DamagedCase{profile_text(0.29, key), "0.29 GFLOP/s cannot be"},
        DamagedCase{profile_text(good, "another"), "another machine's"},
        DamagedCase{"{\"schema_version\": 7}", "another version"}, DamagedCase{"{\"rates\": [", "cannot be read"},
        DamagedCase{"", "cannot be read"}, DamagedCase{"[]", "cannot be read"}}) {
    write_file_atomic(path, c.text);
    MachineFacts facts = machine;
    std::optional<RateReport> loaded;
    const std::string said = warning_of(facts, loaded);
    EXPECT_EQ(loaded.has_value(), c.said == nullptr) << c.text;
    if (c.said == nullptr) {
      EXPECT_EQ(said, "");
      EXPECT_EQ(facts.gemm_fp32_gflops, good);
      EXPECT_EQ(loaded->measured_at, "2026-11-17T22:00:00Z");
    } else {
      EXPECT_THAT(said, HasSubstr(path.string()));
      EXPECT_THAT(said, HasSubstr(c.said));
      EXPECT_EQ(facts.gemm_fp32_gflops, 0) << "nothing of a refused profile is used";
    }
  }
}

TEST(Profile, ACacheThatCannotBeWrittenIsNoError) {
  const CacheHome home;
  std::ofstream(home.path() / "redline") << "a file where the folder should be";
  MachineFacts facts = read_machine_facts();
  EXPECT_NO_THROW(measure_profile(facts, {0.02, 0}));
  EXPECT_GT(facts.gemm_fp32_gflops, 0);
  EXPECT_FALSE(load_profile(facts));
}

TEST(BusyCores, CountsWhatIsNotIdleOnTheCoresAsked) {
  const char* text =
      "cpu  100 0 100 1000 0 0 0 0 0 0\n"
      "cpu0 10 2 30 400 50 6 7 8 9 9\n"
      "cpu1 1000 0 0 0 0 0 0 0 0 0\n"
      "cpu10 5 0 0 100 0 0 0 0 0 0\nintr 1 2 3\n";
  EXPECT_EQ(core_ticks(text, {0})->busy, 10u + 2 + 30 + 6 + 7 + 8);
  EXPECT_EQ(core_ticks(text, {0})->stolen, 8u);
  EXPECT_EQ(core_ticks(text, {0})->nice, 2u);
  EXPECT_EQ(core_ticks(text, {0, 10})->busy, 63u + 5);
  EXPECT_FALSE(core_ticks(text, {2}));  // not there
  EXPECT_FALSE(core_ticks("", {}));
}

TEST(BusyCores, ItsOwnWorkIsNotOthers) {
  const BusyCores busy;
  const int64_t end = now_ns() + 50'000'000;
  while (now_ns() < end) {
  }
  EXPECT_GE(busy.cores_left(), 0);
  EXPECT_LE(busy.cores_left(), affinity_cpus());
}

}  // namespace
}  // namespace redline::device
