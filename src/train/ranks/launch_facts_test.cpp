// What launchers set, as tables: which rank, where to meet, and a sentence for each contradiction.
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "train/launch.h"

namespace redline::train {
namespace {

using Set = std::map<std::string, std::string>;

Launch launch_of(const Set& set) {
  return read_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = set.find(name);
    if (found == set.end()) return std::nullopt;
    return found->second;
  });
}

std::string launch_refusal(const Set& set) {
  try {
    launch_of(set);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Set torchrun_of(const std::string& rank, const std::string& world) {
  return {{"RANK", rank},           {"WORLD_SIZE", world},   {"LOCAL_RANK", rank}, {"LOCAL_WORLD_SIZE", world},
          {"MASTER_ADDR", "host7"}, {"MASTER_PORT", "29500"}};
}

TEST(LaunchFacts, NobodyIsOneOfOne) {
  const Launch launch = launch_of({});
  EXPECT_TRUE(launch.alone());
  EXPECT_EQ(launch.by, "");
  EXPECT_TRUE(launch.ranks.writes());
  // A batch script of Slurm is one process, however many tasks its job has.
  EXPECT_TRUE(launch_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).alone());
}

TEST(LaunchFacts, TorchrunOnOneMachineMeetsOnLoopback) {
  const Launch launch = launch_of(torchrun_of("1", "2"));
  EXPECT_EQ(launch.by, "torchrun");
  EXPECT_EQ(launch.ranks.rank, 1);
  EXPECT_EQ(launch.ranks.per_host, 2);
  EXPECT_FALSE(launch.ranks.writes());
  EXPECT_EQ(launch.address, "127.0.0.1") << "whatever MASTER_ADDR says";
  EXPECT_EQ(launch.port, 29500);
  EXPECT_FALSE(launch.launcher_holds_store);
}

TEST(LaunchFacts, TorchrunsOwnStoreIsUsedWhereItIs) {
  Set set = torchrun_of("0", "2");
  set["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  set["TORCHELASTIC_RUN_ID"] = "none";
  set["TORCHELASTIC_RESTART_COUNT"] = "1";
  const Launch first = launch_of(set);
  EXPECT_TRUE(first.launcher_holds_store);
  EXPECT_EQ(first.address, "host7");
  set["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_NE(launch_of(set).token, first.token) << "a restart meets under another name";
}

TEST(LaunchFacts, SeveralMachinesNeedAnAddressThatIsNotTheirOwn) {
  Set set = torchrun_of("3", "4");
  set["LOCAL_WORLD_SIZE"] = "2";
  set["LOCAL_RANK"] = "1";
  EXPECT_EQ(launch_of(set).address, "host7");
  set["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_NE(launch_refusal(set).find("which each machine reaches itself by"), std::string::npos);
  set.erase("MASTER_ADDR");
  EXPECT_NE(launch_refusal(set).find("MASTER_ADDR does not say"), std::string::npos);
}

// Kubernetes' operators set no more than these: one machine only where nothing says otherwise.
TEST(LaunchFacts, WithoutLocalNumbersRanksAreOnOneMachineOrRefused) {
  Set set{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
  EXPECT_TRUE(launch_of(set).one_host());
  EXPECT_EQ(launch_of(set).ranks.local_rank, 1);
  set["MASTER_ADDR"] = "localhost";
  EXPECT_TRUE(launch_of(set).one_host());
  set["MASTER_ADDR"] = "job-master-0";
  EXPECT_NE(launch_refusal(set).find("LOCAL_RANK is not set"), std::string::npos);
  set.insert({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  EXPECT_EQ(launch_of(set).address, "job-master-0");
}

TEST(LaunchFacts, SlurmAndOpenMpi) {
  const Launch slurm = launch_of({{"SLURM_STEP_NUM_TASKS", "5"},
                                  {"SLURM_PROCID", "4"},
                                  {"SLURM_LOCALID", "0"},
                                  {"SLURM_NODEID", "2"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                  {"SLURM_STEP_NODELIST", "gpu[07-08,11]"},
                                  {"SLURM_JOB_ID", "815"},
                                  {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(slurm.by, "Slurm");
  EXPECT_EQ(slurm.ranks.rank, 4);
  EXPECT_EQ(slurm.ranks.per_host, 1);
  EXPECT_EQ(slurm.address, "gpu07");
  EXPECT_GE(slurm.port, 15000);
  const Launch mpi = launch_of({{"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "prterun-1@1"}});
  EXPECT_EQ(mpi.by, "Open MPI");
  EXPECT_EQ(mpi.ranks.rank, 1);
  EXPECT_EQ(mpi.address, "127.0.0.1");
  EXPECT_NE(launch_refusal({{"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x"},
                            {"SLURM_JOB_ID", "815"}})
                .find("'2(x'"),
            std::string::npos);
  EXPECT_NE(launch_refusal({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_ID", "815"}}).find("SLURM_PROCID is not"),
            std::string::npos);
  EXPECT_NE(launch_refusal({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "3"}}).find("only 2 ranks"),
            std::string::npos);
  EXPECT_EQ(first_host("a1,b2"), "a1");
  EXPECT_EQ(first_host("node"), "node");
  EXPECT_EQ(first_host("n[3,5]"), "n3");
}

TEST(LaunchFacts, ContradictionsHaveSentences) {
  const auto changed = [](const std::string& name, const std::string& value) {
    Set set = torchrun_of("1", "2");
    set[name] = value;
    return launch_refusal(set);
  };
  EXPECT_EQ(launch_refusal(torchrun_of("1", "2")), "");
  EXPECT_EQ(changed("RANK", "2"), "RANK is 2, but there are only 2 ranks (WORLD_SIZE).");
  EXPECT_EQ(changed("RANK", "").find("WORLD_SIZE is set, but RANK is not"), 0u);
  EXPECT_EQ(changed("WORLD_SIZE", "").find("RANK is set, but WORLD_SIZE is not"), 0u);
  EXPECT_NE(changed("RANK", "-1").find("'-1'"), std::string::npos);
  EXPECT_NE(changed("RANK", "1.0").find("'1.0'"), std::string::npos);
  EXPECT_NE(changed("WORLD_SIZE", "0").find("from 1 to"), std::string::npos);
  EXPECT_NE(changed("WORLD_SIZE", "two").find("'two'"), std::string::npos);
  EXPECT_NE(changed("LOCAL_RANK", "2").find("number 2 of 2"), std::string::npos);
  EXPECT_NE(changed("LOCAL_WORLD_SIZE", "4").find("4 of 2 ranks"), std::string::npos);
  EXPECT_NE(changed("LOCAL_WORLD_SIZE", "0").find("from 1 to"), std::string::npos);
  EXPECT_NE(changed("LOCAL_WORLD_SIZE", "").find("LOCAL_WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(changed("LOCAL_RANK", "").find("LOCAL_RANK is not set"), std::string::npos);
  EXPECT_NE(changed("MASTER_PORT", "70000").find("65535"), std::string::npos);
  EXPECT_NE(changed("MASTER_PORT", "0").find("from 1 to"), std::string::npos);
  EXPECT_NE(changed("MASTER_PORT", "").find("where they meet"), std::string::npos);
  Set two = torchrun_of("1", "2");
  two.insert({{"OMPI_COMM_WORLD_SIZE", "4"},
              {"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_NE(launch_refusal(two).find("disagree"), std::string::npos);
}

}  // namespace
}  // namespace redline::train
