#include "doctor/scaling/link_cost.h"

#include <algorithm>
#include <cmath>

namespace redline::doctor {

namespace {

// Copying goes on while the wire is busy, so the slower of the two counts.
double per_byte(const Link& link, const OwnCost& own) {
  return std::max(link.bytes_per_second > 0 ? 1.0 / link.bytes_per_second : 0.0, own.seconds_per_byte);
}

// Gloo's ring: 2(n-1) hops of a chunk of bytes/n, which goes in segments of at most a mebibyte, at least two, two of
// them under way. A segment leaves when the next rank has said that it is ready, so it takes two latencies; while the
// wire is busy with the other one they do not show. The first of all has nothing to hide behind.
ReduceSeconds ring(const Link& link, const OwnCost& own, int ranks, double bytes) {
  constexpr double kSegmentBytes = 1 << 20, kUnderWay = 2;
  const double n = ranks, hops = 2 * (n - 1), chunk = bytes / n, wait = link.segment_latencies * link.latency_seconds;
  const double segments = std::max(kUnderWay, std::ceil(chunk / kSegmentBytes)), busy = chunk * per_byte(link, own);
  const double hop = std::max(busy, segments / kUnderWay * (busy / segments + wait));
  return {hops * own.hop(), hops * hop + wait};
}

}  // namespace

const char* topology_name(Topology topology) {
  switch (topology) {
    case Topology::Ring:
      return "ring";
    case Topology::Tree:
      return "tree";
    case Topology::Hierarchical:
      return "hierarchical";
  }
  return "?";
}

ReduceSeconds all_reduce(const Network& network, const OwnCost& own, int ranks, double bytes) {
  if (ranks < 2) return {};
  switch (network.topology) {
    case Topology::Ring:
      return ring(network.link, own, ranks, bytes);
    case Topology::Tree: {
      const double levels = std::ceil(std::log2(ranks));
      return {2 * levels * (network.link.latency_seconds + own.hop()),
              2 * levels * bytes * per_byte(network.link, own)};
    }
    case Topology::Hierarchical: {
      const int inside = std::clamp(network.per_host, 1, ranks), hosts = (ranks + inside - 1) / inside;
      const ReduceSeconds own_machine = inside > 1 ? ring({}, own, inside, bytes) : ReduceSeconds{};
      const ReduceSeconds between = hosts > 1 ? ring(network.link, own, hosts, bytes) : ReduceSeconds{};
      return {own_machine.messages + between.messages, own_machine.moving + between.moving};
    }
  }
  return {};
}

double exchange_seconds(const Network& network, const OwnCost& own, int ranks) {
  return ranks < 2 ? 0 : (ranks - 1) * (network.link.latency_seconds + own.message_seconds);
}

}  // namespace redline::doctor
