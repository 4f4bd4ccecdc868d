/* Takes memory bandwidth: one pass after another over a block larger than any cache, for so long, then rests for so long.
   hog [MEGABYTES] [ON_MS OFF_MS] */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 512) << 20;
  char *from = malloc(bytes), *to = malloc(bytes);
  if (from == NULL || to == NULL) return 1;
  memset(from, 1, bytes);
  const double on = argc > 3 ? 1e-3 * atof(argv[2]) : 1e9, off = argc > 3 ? 1e-3 * atof(argv[3]) : 0;
  const size_t piece = (size_t)8 << 20;
  for (;;) {
    for (const double begin = now(); now() - begin < on;)
      for (size_t at = 0; at + piece <= bytes; at += piece) {
        memcpy(to + at, from + at, piece);
        __asm__ volatile("" : : "r"(to) : "memory");
        if (now() - begin >= on) break;
      }
    const struct timespec rest = {(time_t)off, (long)(1e9 * (off - (double)(time_t)off))};
    nanosleep(&rest, NULL);
  }
}
