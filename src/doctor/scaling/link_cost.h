// What exchanges between ranks cost over a network: the usual model of a message (latency and bytes over bandwidth),
// with the machine's own cost of sending, copying and adding beside the wire's. Thakur, Rabenseifner and Gropp 2005,
// "Optimization of Collective Communication Operations in MPICH", for ring and tree. Pure.
#pragma once

#include <optional>
#include <string>

namespace redline::doctor {

enum class Topology { Ring, Tree, Hierarchical };
const char* topology_name(Topology topology);

struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;    // one way
  double segment_latencies = 2;  // that a segment takes: the next rank is ready, and here it is
};

// Of this engine on this machine, without a wire.
struct OwnCost {
  double message_seconds = 0;   // of one message, however small
  double seconds_per_byte = 0;  // received, copied and added
  // Of a message inside a reduction, where that is known to be less: nobody has to be woken up for it.
  std::optional<double> hop_seconds{};
  double hop() const { return hop_seconds.value_or(message_seconds); }
};

struct Network {
  Topology topology = Topology::Ring;
  Link link;
  int per_host = 1;  // ranks that meet on their machine first (hierarchical)
};

// A part that may pass while another bucket moves, and one that the next bucket waits for.
struct ReduceSeconds {
  double messages = 0, moving = 0;
  double sum() const { return messages + moving; }
};

// Sum over `ranks` of `bytes` on each. Ring: 2(n-1) hops of bytes/n, as Gloo makes them. Tree: up and down a binary
// tree, whole. Hierarchical: a ring inside each machine, then a ring of machines.
ReduceSeconds all_reduce(const Network& network, const OwnCost& own, int ranks, double bytes);
inline double all_reduce_seconds(const Network& network, const OwnCost& own, int ranks, double bytes) {
  return all_reduce(network, own, ranks, bytes).sum();
}
// A few numbers of each rank to all: n-1 messages in a ring, whatever the topology of gradients.
double exchange_seconds(const Network& network, const OwnCost& own, int ranks);

}  // namespace redline::doctor
