#include "train/ranks/peer_table.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

namespace {
constexpr char kFieldEnd = '\t';
}

std::string Beat::text() const {
  return fmt::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}{0}{6}", kFieldEnd, count, static_cast<int>(state), step, exit_code,
                     phase, printable(reason));
}

std::optional<Beat> Beat::parse(std::string_view text) {
  const std::vector<std::string> parts = split(text, kFieldEnd);
  if (parts.size() != 6) return std::nullopt;
  const auto count = parse_int(parts[0]), state = parse_int(parts[1]), step = parse_int(parts[2]),
             code = parse_int(parts[3]);
  if (!count || !state || *state < 0 || *state > 2 || !step || !code) return std::nullopt;
  return Beat{*count, static_cast<State>(*state), *step, parts[4], parts[5], static_cast<int>(*code)};
}

// `step` counts those that are made.
std::string Beat::last_seen() const {
  if (state == State::Done) return fmt::format("last seen after its last step, {}", step);
  return fmt::format("last seen in {} of step {}", phase, step + 1);
}

std::string beat_key(int rank) { return fmt::format("beat/{}", rank); }

PeerTable::PeerTable(int rank, int world, int looks_until_lost, double look_seconds)
    : rank_(rank),
      looks_until_lost_(looks_until_lost),
      look_seconds_(look_seconds),
      peers_(static_cast<size_t>(world)) {}

void PeerTable::look(int rank, const std::optional<Beat>& beat) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!beat) return;  // the rendezvous has a limit of its own
  peer.looks = peer.seen && beat->count == peer.beat.count ? peer.looks + 1 : 0;
  peer.seen = true;
  peer.beat = *beat;
}

void PeerTable::gone(int rank, const std::string& how) {
  if (rank >= 0 && rank < static_cast<int>(peers_.size())) peers_[static_cast<size_t>(rank)].gone = how;
}

int PeerTable::never_seen() const {
  for (size_t r = 0; r < peers_.size(); ++r)
    if (static_cast<int>(r) != rank_ && !peers_[r].seen) return static_cast<int>(r);
  return -1;
}

std::optional<Loss> PeerTable::lost() const {
  std::optional<Loss> failed, silent, follower;
  int longest = 0;
  for (size_t r = 0; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    const int rank = static_cast<int>(r);
    if (rank == rank_ || peer.beat.state == Beat::State::Done) continue;
    if (peer.beat.state == Beat::State::Failed) {
      const bool because_of_others = peer.beat.exit_code == static_cast<int>(ExitCode::PeerLost);
      auto& slot = because_of_others ? follower : failed;
      if (!slot) slot = Loss{rank, fmt::format("Rank {} ended: {}", rank, peer.beat.reason), true};
      continue;
    }
    const std::string last_seen = peer.seen ? peer.beat.last_seen() : "never seen";
    if (!peer.gone.empty()) return Loss{rank, fmt::format("Rank {} {} ({}).", rank, peer.gone, last_seen), false};
    if (peer.seen && peer.looks >= looks_until_lost_ && peer.looks > longest) {
      longest = peer.looks;
      silent = Loss{rank,
                    fmt::format("Rank {} has given no sign of life for {} ({}): it is stopped, hung or cut off.", rank,
                                format_seconds(peer.looks * look_seconds_), last_seen),
                    false};
    }
  }
  return failed ? failed : silent ? silent : follower;
}

}  // namespace redline::train
