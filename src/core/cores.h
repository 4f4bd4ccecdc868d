// The cores this process may run on.
#pragma once

namespace redline {

int affinity_cpus();  // of the affinity mask, whatever a cgroup's quota says; at least 1

}  // namespace redline
