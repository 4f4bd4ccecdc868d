/* Imitates the NVML functions that gpu_monitor.cpp uses: two GPUs, of which the second cannot report its utilisation. Test only. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct utilization {
  unsigned int gpu, memory;
};
struct memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
  if (index >= 2) return 2; /* invalid argument */
  *device = (void *)(uintptr_t)(index + 1);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out) {
  if ((uintptr_t)device == 2) return 3; /* not supported */
  out->gpu = 87;
  out->memory = 40;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *out) {
  (void)device;
  out->total = 24ULL << 30;
  out->used = 6ULL << 30;
  out->free = out->total - out->used;
  return 0;
}
struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
/* The first GPU is this process's and two others', the second only another's. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *out) {
  const unsigned have = (uintptr_t)device == 1 ? 3 : 1;
  if (*count < have) return 7; /* insufficient size */
  *count = have;
  for (unsigned i = 0; i < have; ++i) out[i].pid = 0x7ffffff0u + i;
  if (have == 3) out[1].pid = (unsigned)getpid();
  return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
  (void)device;
  strncpy(name, "Imitated\033GPU", length);
  return 0;
}
