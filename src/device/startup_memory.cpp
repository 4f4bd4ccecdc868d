#include "device/startup_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace redline::device {

namespace {

// Relocations inside read-only segments (not seen on x86-64 for years) would be lost with the pages.
bool has_text_relocations(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + header.p_vaddr);  // as the loader's own table says
    for (; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL) != 0))
        return true;
  }
  return false;
}

int release_read_only_pages(dl_phdr_info* object, size_t /*size*/, void* /*unused*/) {
  if (has_text_relocations(*object)) return 0;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0) continue;
    // Only whole pages of this segment: its neighbours may share the outer ones.
    const uintptr_t begin = (object->dlpi_addr + header.p_vaddr + page - 1) / page * page,
                    end = (object->dlpi_addr + header.p_vaddr + header.p_filesz) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // advice: may be refused
  }
  return 0;
}

}  // namespace

void release_startup_memory() {
  ::dl_iterate_phdr(release_read_only_pages, nullptr);
  ::malloc_trim(0);
}

}  // namespace redline::device
