// What launchers say, in one form. Pure but for the last function: its test is a table.
#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"
#include "train/launch.h"

namespace redline::train {

namespace {

struct Variables {
  const Environment& get;

  bool has(const std::string& name) const {
    const auto value = get(name);
    return value && !value->empty();
  }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    return has(name) ? *get(name) : otherwise;
  }
  int number(const std::string& name, int64_t least, int64_t most) const {
    const std::string value = text(name);
    const auto parsed = parse_int(value);
    if (!parsed || *parsed < least || *parsed > most)
      throw ConfigError(fmt::format("The launcher's variable {} is '{}'; expected a number from {} to {}.", name,
                                    printable(value), least, most));
    return static_cast<int>(*parsed);
  }
  int number_or(const std::string& name, int64_t least, int64_t most, int otherwise) const {
    return has(name) ? number(name, least, most) : otherwise;
  }
};

constexpr int64_t kMostRanks = 65536;

// The names of one launcher. It is Slurm or Open MPI when `world` is set.
struct Names {
  const char *by, *rank, *world, *local_rank, *per_host;
};
constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// srun's own: a batch script, which is one process however many tasks the job has, does not get it.
constexpr Names kSlurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};
constexpr Names kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};

bool is_loopback(const std::string& address) {
  return address == "localhost" || starts_with(address, "127.") || address == "::1";
}

RankFacts read_ranks(const Variables& variables, const Names& names) {
  for (const auto& [needed, other] : {std::pair{names.rank, names.world}, std::pair{names.world, names.rank}})
    if (!variables.has(needed))
      throw ConfigError(fmt::format(
          "{} is set, but {} is not: a launcher sets both. Unset the one for a run of its own, or start with torchrun, "
          "srun, mpirun or `redline launch`.",
          other, needed));
  RankFacts ranks;
  ranks.world = variables.number(names.world, 1, kMostRanks);
  ranks.rank = variables.number(names.rank, 0, kMostRanks);
  if (ranks.rank >= ranks.world)
    throw ConfigError(
        fmt::format("{} is {}, but there are only {} ranks ({}).", names.rank, ranks.rank, ranks.world, names.world));
  ranks.local_rank = variables.number_or(names.local_rank, 0, kMostRanks, ranks.rank);
  ranks.per_host = ranks.world;
  if (*names.per_host == '\0') return ranks;  // Slurm's has another form: the caller reads it
  const bool numbered = variables.has(names.local_rank), counted = variables.has(names.per_host);
  if (counted) ranks.per_host = variables.number(names.per_host, 1, kMostRanks);
  // With neither, all are on this machine, unless rank 0 is said to be on another.
  const bool elsewhere = variables.has("MASTER_ADDR") && !is_loopback(variables.text("MASTER_ADDR"));
  if (ranks.world > 1 && (numbered != counted || (!counted && elsewhere)))
    throw ConfigError(fmt::format(
        "{} ranks, but {} is not set, so it is not known which of them are on this machine. Set {} (from 0 on each "
        "machine) and {} (how many are on it), as torchrun does.",
        ranks.world, numbered ? names.per_host : names.local_rank, names.local_rank, names.per_host));
  return ranks;
}

// "2(x3),1": so many tasks on each machine; those of machine `node`.
int slurm_tasks_of(const std::string& text, int node) {
  for (const std::string& part : split(text, ',')) {
    const size_t bracket = part.find("(x");
    const auto tasks = parse_int(part.substr(0, bracket));
    const auto times = bracket == std::string::npos ? std::optional<int64_t>(1)
                                                    : parse_int(part.substr(bracket + 2, part.size() - bracket - 3));
    if (!tasks || !times) break;
    if (node < *times) return static_cast<int>(*tasks);
    node -= static_cast<int>(*times);
  }
  throw ConfigError(
      fmt::format("Slurm's SLURM_STEP_TASKS_PER_NODE is '{}', which does not say how many tasks this machine has.",
                  printable(text)));
}

// A port that all ranks of a job find by themselves, away from where the kernel gives ports out.
uint16_t port_of(const std::string& job) { return static_cast<uint16_t>(15000 + hash64(job) % 10000); }

void check(const Launch& launch) {
  const RankFacts& ranks = launch.ranks;
  if (ranks.local_rank >= ranks.per_host)
    throw ConfigError(fmt::format("{} says that this is number {} of {} ranks on this machine; the first is 0.",
                                  launch.by, ranks.local_rank, ranks.per_host));
  if (ranks.per_host > ranks.world)
    throw ConfigError(
        fmt::format("{} says that {} of {} ranks are on this machine.", launch.by, ranks.per_host, ranks.world));
  if (!launch.one_host() && is_loopback(launch.address))
    throw ConfigError(fmt::format(
        "{} ranks on several machines (this one has {}), but MASTER_ADDR is {}, which each machine reaches itself by. "
        "Give the address of rank 0's machine in the network that joins them.",
        ranks.world, ranks.per_host, launch.address));
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const size_t stop = list.find_first_of(",-]", end + 1);
  return stop == std::string::npos ? list : list.substr(0, end) + list.substr(end + 1, stop - end - 1);
}

Launch read_launch(const Environment& variable) {
  const Variables variables{variable};
  Launch launch;
  const bool slurm = variables.has(kSlurm.world), mpi = variables.has(kOpenMpi.world);
  if (variables.has("WORLD_SIZE") || variables.has("RANK")) {
    launch.by = variables.has(kTokenVariable) ? "redline" : "torchrun";
    launch.ranks = read_ranks(variables, kTorchrun);
    if (mpi && read_ranks(variables, kOpenMpi).world != launch.ranks.world)
      throw ConfigError(fmt::format("Two launchers disagree: WORLD_SIZE is {}, OMPI_COMM_WORLD_SIZE is {}.",
                                    launch.ranks.world, read_ranks(variables, kOpenMpi).world));
  } else if (mpi) {
    launch.by = kOpenMpi.by;
    launch.ranks = read_ranks(variables, kOpenMpi);
  } else if (slurm) {
    launch.by = kSlurm.by;
    launch.ranks = read_ranks(variables, kSlurm);
    launch.ranks.per_host =
        slurm_tasks_of(variables.text("SLURM_STEP_TASKS_PER_NODE", std::to_string(launch.ranks.world)),
                       variables.number_or("SLURM_NODEID", 0, kMostRanks, 0));
  } else {
    return launch;
  }
  if (launch.alone()) return launch;
  const std::string job = variables.text("SLURM_JOB_ID") + variables.text("SLURM_STEP_ID") +
                          variables.text("PMIX_NAMESPACE") + variables.text("OMPI_MCA_ess_base_jobid") +
                          variables.text("TORCHELASTIC_RUN_ID");
  launch.token = variables.text(kTokenVariable) + job + "." + variables.text("TORCHELASTIC_RESTART_COUNT", "0");
  launch.launcher_holds_store =
      launch.by == "redline" || to_lower(variables.text("TORCHELASTIC_USE_AGENT_STORE")) == "true";
  if (!launch.one_host() || launch.launcher_holds_store) {
    launch.address = variables.text("MASTER_ADDR");
    if (launch.address.empty() && launch.by == kSlurm.by)
      launch.address = first_host(variables.text("SLURM_STEP_NODELIST", variables.text("SLURM_JOB_NODELIST")));
    if (launch.address.empty())
      throw ConfigError(fmt::format(
          "{} ranks on several machines, and MASTER_ADDR does not say where rank 0 is; set it on all of them.",
          launch.ranks.world));
  }
  if (variables.has("MASTER_PORT"))
    launch.port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
  else if (!job.empty())
    launch.port = port_of(job);
  else
    throw ConfigError(fmt::format(
        "{} started {} ranks, but MASTER_PORT does not say where they meet; set it to a free port on all of them.",
        launch.by, launch.ranks.world));
  check(launch);
  return launch;
}

Launch read_launch() {
  return read_launch([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace redline::train
