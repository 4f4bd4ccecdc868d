// What a rank knows of the others from their beats, and whom it holds for lost. No clock inside: time is counted in
// looks, so that a machine that was suspended as a whole, looks included, loses nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redline::train {

// A sign of life, as it stands in the store.
struct Beat {
  enum class State { Running, Done, Failed };
  int64_t count = 0;
  State state = State::Running;
  int64_t step = 0;
  std::string phase, reason;  // reason: why it ended, when it failed
  int exit_code = 0;

  std::string text() const;
  static std::optional<Beat> parse(std::string_view text);
  std::string last_seen() const;  // for a sentence
};

// Where ranks leave their beats in the store, and how long they wait for one another.
std::string beat_key(int rank);
inline constexpr const char* kPatienceKey = "peer_seconds";

struct Loss {
  int rank = 0;
  std::string sentence;
  bool of_its_own = false;  // it said why: what others say follows from that
};

class PeerTable {
 public:
  // `looks_until_lost`: without a new beat; `look_seconds`: for the sentence.
  PeerTable(int rank, int world, int looks_until_lost, double look_seconds);

  // Once per look, for every other rank; nullopt when it has not been heard of yet.
  void look(int rank, const std::optional<Beat>& beat);
  // The launcher says that a rank has ended.
  void gone(int rank, const std::string& how);
  // The first cause: a rank that is gone, then one that failed by itself, then the one silent for longest, then one
  // that failed because of others.
  std::optional<Loss> lost() const;
  // The first that has not been heard of at all; -1: none.
  int never_seen() const;

 private:
  struct Peer {
    Beat beat;
    bool seen = false;
    int looks = 0;  // since its beat changed
    std::string gone;
  };
  int rank_, looks_until_lost_;
  double look_seconds_;
  std::vector<Peer> peers_;
};

}  // namespace redline::train
