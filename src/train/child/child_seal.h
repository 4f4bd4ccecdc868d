// A child that works on files of others keeps to itself: nothing of the user's environment, a session of its own, no
// descriptors but its output, bounded memory and files, no network. The network is cut twice, by a namespace of its own
// and by a filter on system calls, because each is forbidden on some machines; either is enough.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace redline::train {

struct ChildSeal {
  int64_t memory_bytes = 0;    // private writable memory (RLIMIT_DATA); 0: as ours
  int64_t file_bytes = 0;      // the largest file it may write; 0: as ours
  bool allow_network = false;  // go on where the network cannot be cut off, instead of refusing
};

// PATH, HOME, LANG and one thread: the same for every user.
std::vector<std::pair<std::string, std::string>> sealed_environment();

enum class SealStep : int32_t { Done = 0, Limits, Network };
// Called between fork and exec, so async-signal-safe. What failed, with errno; Done when the child is sealed.
SealStep seal_this_process(const ChildSeal& seal);

}  // namespace redline::train
