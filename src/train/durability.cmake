# What must survive a crash: safetensors, checkpoint generations, verify, diff, convert, and the crash-state harness.
