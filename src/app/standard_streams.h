// The process's first three descriptors and the signals of a write that fails. A reader that goes away (`| head`), a
// full disk behind stdout or a closed stderr must neither end a training run nor pass for success.
#pragma once

namespace redline::app {

// First thing in main. Closed descriptors 0 to 2 become /dev/null, so that no data file is ever opened under one of
// them; SIGPIPE and SIGXFSZ become errors of the write; writes to stdout never fail in the middle of a command: the
// first error is kept for finish_output().
void prepare_streams();

// Last thing in main: writes out what is left. The exit code is `code`, or 7 with a sentence when that was 0 and stdout
// could not be written; a reader that went away is no error.
int finish_output(int code);

}  // namespace redline::app
