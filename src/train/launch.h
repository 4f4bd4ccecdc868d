// Several processes that train one job: which of them this is, read from the variables that launchers set (torchrun's,
// which `redline launch` sets too, Slurm's, Open MPI's), and starting them on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/machine_facts.h"

namespace redline::train {

struct Launch {
  RankFacts ranks;
  std::string by;  // "torchrun", "redline", "Slurm", "Open MPI"; empty: nobody, this process is alone
  // Where rank 0, or the launcher, holds the store that ranks meet in. Loopback when all ranks are on one machine.
  std::string address = "127.0.0.1";
  uint16_t port = 0;
  bool launcher_holds_store = false;
  // The same for all processes of one start, another for any other: catches mixed-up jobs; no protection against
  // anybody who means harm.
  std::string token;

  bool alone() const { return ranks.world == 1; }
  bool one_host() const { return ranks.per_host == ranks.world; }
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Throws ConfigError when variables are missing, no numbers, or contradict each other.
Launch read_launch(const Environment& variable);
Launch read_launch();  // of this process

// The first machine of Slurm's list: "node07" of "node[07-09,12]".
std::string first_host(const std::string& list);

// Set by `redline launch` beside torchrun's names.
inline constexpr const char* kTokenVariable = "REDLINE_JOB_TOKEN";

// Starts `count` ranks of this program with these words on this machine, holds the store they meet in (on loopback),
// and waits for all. Signals that ask for a stop are passed on. When one is lost, the others are told which, get
// `grace_seconds` to end by themselves, and are then ended; none outlives this call or this process. Returns the exit
// code of the job: that of the rank whose end was its own, 8 when one was killed, else that of rank 0. What they say is
// appended to `output`, or said here when that is empty.
int launch_ranks(int count, const std::vector<std::string>& words, double grace_seconds,
                 const std::filesystem::path& output = {});

class Job;
// How many ranks `redline train` has to start by itself for trainer.devices; 1: none. Throws ConfigError when the
// launcher and the options contradict each other.
int ranks_to_start(const Job& job, const Launch& launch);

}  // namespace redline::train
