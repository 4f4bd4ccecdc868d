// What only the start of the process needed, given back to the kernel: loading LibTorch and Arrow reads some 45 MB of
// relocation tables, symbols and registration code that are never looked at again, and frees part of the heap.
#pragma once

namespace redline::device {

// A page that is needed after all comes back from the file by itself. Takes about a millisecond.
void release_startup_memory();

}  // namespace redline::device
