/* Takes memory bandwidth: one pass after another over a block larger than any cache. hog [MEGABYTES] */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 512) << 20;
  char *from = malloc(bytes), *to = malloc(bytes);
  if (from == NULL || to == NULL) return 1;
  memset(from, 1, bytes);
  for (;;) {
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
  }
}
