// See child_seal.h.
#include "train/child/child_seal.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>

namespace redline::train {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr uint32_t kLastCall = 0x3fffffff;  // above: the x32 calls, numbered otherwise
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr uint32_t kLastCall = 0xffffffff;
#else
constexpr uint32_t kArchitecture = 0;  // no filter: only the namespace is left
constexpr uint32_t kLastCall = 0;
#endif

// socket, and what would get a socket another way: io_uring makes its own, a traced process or its descriptors lend
// theirs. socketpair stays: it reaches nobody.
constexpr uint32_t kDenied[] = {SYS_socket,           SYS_connect,           SYS_io_uring_setup, SYS_ptrace,
                                SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd};

bool deny_sockets() {
  if (kArchitecture == 0) {
    errno = ENOSYS;
    return false;
  }
  constexpr auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  constexpr size_t kCalls = std::size(kDenied);
  sock_filter program[kCalls + 6];
  size_t n = 0;
  // Jumps count the instructions that are left out. The refusal is the last one.
  program[n++] = load(offsetof(seccomp_data, arch));
  program[n++] = {BPF_JMP | BPF_JEQ | BPF_K, 0, kCalls + 3, kArchitecture};
  program[n++] = load(offsetof(seccomp_data, nr));
  program[n++] = {BPF_JMP | BPF_JGT | BPF_K, kCalls + 1, 0, kLastCall};
  for (size_t i = 0; i < kCalls; ++i)
    program[n++] = {BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint8_t>(kCalls - i), 0, kDenied[i]};
  program[n++] = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  program[n++] = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM};
  const sock_fprog filter = {static_cast<unsigned short>(n), program};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

bool cut_network() {
  // Without root a network namespace needs a user namespace. Root goes without: in one it would lose the right to read
  // and write what belongs to others, such as a folder that a container was given.
  const bool apart = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  const bool denied = deny_sockets();
  return apart || denied;
}

bool lower_limit(decltype(RLIMIT_DATA) which, rlim_t most) {
  rlimit now{};
  if (::getrlimit(which, &now) != 0) return false;
  now.rlim_max = std::min(now.rlim_max, most);
  now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
  return ::setrlimit(which, &now) == 0;
}

// Not closed but marked: the pipe that tells the parent how the start went must live until exec.
void mark_descriptors() {
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit open{};  // Linux before 5.11
  const bool known = ::getrlimit(RLIMIT_NOFILE, &open) == 0;
  const int end = known ? static_cast<int>(std::min<rlim_t>(open.rlim_cur, 1 << 20)) : 1024;
  for (int descriptor = 3; descriptor < end; ++descriptor) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> sealed_environment() {
  // One thread: a conversion moves bytes, and each thread would reserve memory of its own.
  return {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
          {"HOME", "/nonexistent"},
          {"LANG", "C.UTF-8"},
          {"OMP_NUM_THREADS", "1"},
          {"MKL_NUM_THREADS", "1"}};
}

SealStep seal_this_process(const ChildSeal& seal) {
  ::setsid();
  mark_descriptors();
  if (!lower_limit(RLIMIT_CORE, 0)) return SealStep::Limits;
  if (seal.memory_bytes > 0 && !lower_limit(RLIMIT_DATA, static_cast<rlim_t>(seal.memory_bytes)))
    return SealStep::Limits;
  if (seal.file_bytes > 0 && !lower_limit(RLIMIT_FSIZE, static_cast<rlim_t>(seal.file_bytes))) return SealStep::Limits;
  if (!cut_network() && !seal.allow_network) return SealStep::Network;
  return SealStep::Done;
}

}  // namespace redline::train
