// `redline launch`: the ranks of a job on this machine. The store is here and not in rank 0, so that the others still
// hear which rank was lost when that is rank 0.
#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/child/child_process.h"
#include "train/job.h"
#include "train/launch.h"
#include "train/ranks/listen.h"
#include "train/ranks/peer_table.h"
#include "train/signals.h"

namespace redline::train {

namespace {

constexpr double kPollSeconds = 0.02;

struct StartedRank {
  std::unique_ptr<ChildProcess> process;
  std::optional<ChildResult> ended;
  bool ended_by_us = false;
};

std::string random_token() {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint64_t>(now_ns());
  return hex64(value);
}

std::vector<std::pair<std::string, std::string>> rank_environment(int rank, int count, uint16_t port,
                                                                  const std::string& token) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(count)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(count)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {kTokenVariable, token}};
}

// As the ranks read it, variables of an outer launcher included.
std::string token_of_ranks(const std::vector<std::pair<std::string, std::string>>& set) {
  return read_launch([&](const std::string& name) -> std::optional<std::string> {
           for (const auto& [key, value] : set)
             if (key == name) return value;
           const char* value = std::getenv(name.c_str());
           if (value == nullptr) return std::nullopt;
           return std::string(value);
         })
      .token;
}

bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t bracket = text.rfind(')');
  return bracket != std::string::npos && bracket + 2 < text.size() && text[bracket + 2] == 'T';
}

std::string end_text(const ChildResult& result) {
  if (result.signal != 0) return fmt::format("was killed by {}", strsignal(result.signal));
  return fmt::format("ended with code {}", result.exit_code);
}

std::optional<std::string> stored(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return std::nullopt;
  return store.get_to_str(key);
}

// When others have come to their end, nobody but the launcher is left to miss a rank that is stopped. Time is counted
// in looks, so that a machine that was suspended as a whole ends nobody.
class LeftBehind {
 public:
  explicit LeftBehind(c10d::Store& store) : store_(store) {}

  // True when every rank that still runs has been stopped for as long as the ranks would wait for each other.
  bool look(bool some_ended, bool only_stopped) {
    looks_ = some_ended && only_stopped ? looks_ + 1 : 0;
    if (looks_ == 0) return false;
    if (looks_ == 1) patience_ = parse_double(stored(store_, kPatienceKey).value_or("")).value_or(kDefaultPatience);
    return seconds() >= patience_;
  }
  double seconds() const { return static_cast<double>(looks_) * kPollSeconds; }
  std::string last_seen(size_t rank) const {
    const auto beat = Beat::parse(stored(store_, beat_key(static_cast<int>(rank))).value_or(""));
    return beat ? beat->last_seen() : "never seen";
  }

 private:
  static constexpr double kDefaultPatience = 60;
  c10d::Store& store_;
  int64_t looks_ = 0;
  double patience_ = kDefaultPatience;
};

int code_of_job(const std::vector<StartedRank>& ranks) {
  constexpr int kLost = static_cast<int>(ExitCode::PeerLost), kStopped = static_cast<int>(ExitCode::Preempted);
  bool lost = false, stopped = false;
  for (const StartedRank& rank : ranks) {
    const int code =
        rank.ended->signal != 0 || rank.ended_by_us || rank.ended->exit_code < 0 ? kLost : rank.ended->exit_code;
    if (code != 0 && code != kLost && code != kStopped) return code;
    lost = lost || code == kLost;
    stopped = stopped || code == kStopped;
  }
  // Ranks that had not begun yet when rank 0 was asked to stop lose it.
  return stopped && !ranks.empty() && ranks[0].ended->exit_code == kStopped ? kStopped
         : lost                                                             ? kLost
         : stopped                                                          ? kStopped
                                                                            : 0;
}

}  // namespace

int launch_ranks(int count, const std::vector<std::string>& words, double grace_seconds,
                 const std::filesystem::path& output) {
  const SignalScope signals;
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listen_on("127.0.0.1", options.port);
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const std::string token = random_token();
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      "redline/" + token_of_ranks(rank_environment(0, count, options.port, token)), server);

  std::vector<StartedRank> ranks(static_cast<size_t>(count));
  for (int r = 0; r < count; ++r) {
    ChildOptions child;
    child.arguments = {std::filesystem::read_symlink("/proc/self/exe").string()};
    child.arguments.insert(child.arguments.end(), words.begin(), words.end());
    child.environment = rank_environment(r, count, options.port, token);
    child.output = output;
    ranks[static_cast<size_t>(r)].process = std::make_unique<ChildProcess>(child);
  }

  const auto end_rank = [&](size_t r, const std::string& why) {
    if (ranks[r].ended) return;
    log_error(fmt::format("Rank {} {} and is ended.", r, why));
    ranks[r].ended_by_us = true;
    ranks[r].process->send(SIGKILL);
    ranks[r].ended = ranks[r].process->wait();
  };
  int64_t failed_ns = 0;
  bool told = false;
  LeftBehind left_behind(*store);
  while (true) {
    bool running = false, only_stopped = true, some_ended = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
      StartedRank& rank = ranks[r];
      some_ended = some_ended || rank.ended;
      if (rank.ended) continue;
      rank.ended = rank.process->wait(0);
      if (!rank.ended) {
        running = true;
        only_stopped = only_stopped && is_stopped(rank.process->pid());
        continue;
      }
      if (rank.ended->exit_code == 0) continue;
      if (failed_ns == 0) {
        failed_ns = now_ns();
        const std::string how = end_text(*rank.ended);
        // One that ended by itself has told the others why.
        if (rank.ended->signal != 0) log_error(fmt::format("Rank {} {} ({}).", r, how, left_behind.last_seen(r)));
        store->set("gone", fmt::format("{}\t{}", r, how));
      }
    }
    if (!running) break;
    if (StopFlag::requested() && !told) {
      told = true;
      for (StartedRank& rank : ranks)
        if (!rank.ended) rank.process->send(SIGTERM);  // a second SIGINT would end them at once
    }
    if (failed_ns != 0 && (only_stopped || seconds_between(failed_ns, now_ns()) > grace_seconds))
      for (size_t r = 0; r < ranks.size(); ++r) end_rank(r, only_stopped ? "is stopped" : "is still running");
    if (left_behind.look(some_ended, only_stopped))
      for (size_t r = 0; r < ranks.size(); ++r)
        end_rank(r, fmt::format("has been stopped for {} while others have come to their end ({})",
                                format_seconds(left_behind.seconds()), left_behind.last_seen(r)));
    std::this_thread::sleep_for(std::chrono::duration<double>(kPollSeconds));
  }
  return code_of_job(ranks);
}

int ranks_to_start(const Job& job, const Launch& launch) {
  const TrainerConfig& trainer = job.trainer();
  const int64_t asked = *parse_int(trainer.devices.value());
  if (!launch.by.empty()) {
    if (asked > 1 && asked != launch.ranks.per_host)
      throw ConfigError(
          fmt::format("trainer.devices is {}, but {} started {} ranks on this machine; one of them is wrong.", asked,
                      launch.by, launch.ranks.per_host));
    if (trainer.num_nodes > 1 && trainer.num_nodes * launch.ranks.per_host != launch.ranks.world)
      throw ConfigError(fmt::format("trainer.num_nodes is {}, but {} started {} ranks, {} of them on this machine.",
                                    trainer.num_nodes, launch.by, launch.ranks.world, launch.ranks.per_host));
    return 1;
  }
  if (trainer.num_nodes > 1)
    throw ConfigError(fmt::format(
        "trainer.num_nodes is {}: ranks on several machines are started by a launcher on each of them, e.g. srun, or "
        "torchrun --no-python --nnodes {} --rdzv-endpoint HOST:PORT --nproc-per-node {} redline train ...",
        trainer.num_nodes, trainer.num_nodes, std::max<int64_t>(1, asked)));
  const auto gpus = static_cast<int64_t>(job.machine().gpus.size());
  if (job.device().is_cpu()) return static_cast<int>(std::max<int64_t>(1, asked));
  if (asked > gpus) throw DeviceError(fmt::format("trainer.devices is {}, but LibTorch sees {} GPUs.", asked, gpus));
  return static_cast<int>(asked == -1 ? std::max<int64_t>(1, gpus) : asked);
}

}  // namespace redline::train
