// Threads of an operator that wait for each other spin for a few milliseconds by libgomp's default. Beside another
// process on the same cores they spin away the time the thread they wait for needs: two jobs on two cores slowed each
// other tenfold and more. With a short spin count a waiting thread soon sleeps instead, and alone nothing is lost
// (bench/results, neighbour_*).
//
// libgomp reads GOMP_SPINCOUNT once, when it is loaded, and has no call for it. So the program starts itself again with
// the variable set, in its .preinit_array: before any library's constructor has run, so that only mapping and
// relocating the libraries is done twice (about 10 ms, not the 0.2 s that LibTorch's constructors take). setenv here
// would be lost: the C library takes its environment only after this. Whoever gives GOMP_SPINCOUNT or OMP_WAIT_POLICY
// is obeyed, and nothing is started twice.
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>

namespace {

// Chosen on the sequence VAE between 0 and libgomp's own 300000, alone and beside a neighbour; held on both tasks.
char bounded[] = "GOMP_SPINCOUNT=1500";

bool names(const char* entry, const char* variable) {
  const size_t length = std::strlen(variable);
  return std::strncmp(entry, variable, length) == 0 && entry[length] == '=';
}

// Runs before the C library and C++ are set up: no allocation, no locale, no streams.
void bound_waits(int /*argc*/, char** argv, char** environment) {
  size_t count = 0;
  for (; environment[count] != nullptr; ++count)
    if (names(environment[count], "GOMP_SPINCOUNT") || names(environment[count], "OMP_WAIT_POLICY")) return;
  // The path the kernel was given. Without a loader's base address the loader itself was started with the program as
  // its argument: its path is not ours.
  const auto* path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (path == nullptr || getauxval(AT_BASE) == 0 || getauxval(AT_SECURE) != 0) return;
  auto** extended = static_cast<char**>(__builtin_alloca((count + 2) * sizeof(char*)));
  std::memcpy(extended, environment, count * sizeof(char*));
  extended[count] = bounded;
  extended[count + 1] = nullptr;
  execve(path, argv, extended);  // on failure the program goes on, with waits that spin
}

using Early = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] Early bound_waits_early = bound_waits;

}  // namespace
