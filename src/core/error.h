// The errors a user can cause or meet, one class per meaning; app/main.cpp maps class to exit code.
//
// Throw by meaning, with a sentence that says what was expected, what was found, where, and what to do next.
// An outcome to expect (end of data, one bad sample) is not an error: return std::optional or a result type.
#pragma once

#include <stdexcept>
#include <string>

namespace redline {

// Exit codes of the program; documented in docs/exit_codes.md and in the man page.
enum class ExitCode : int {
  Ok = 0,
  Failure = 1,
  Usage = 2,
  Data = 3,
  NoCheckpoint = 4,
  Diverged = 5,
  OutOfMemory = 6,
  Disk = 7,
  PeerLost = 8,
  Preempted = 75,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A file of options, a flag or a command is wrong.
struct ConfigError : Error {
  explicit ConfigError(const std::string& sentence) : Error(ExitCode::Usage, sentence) {}
};
// Training data is missing, unreadable or over the limit of bad samples.
struct DataError : Error {
  explicit DataError(const std::string& sentence) : Error(ExitCode::Data, sentence) {}
};
// The machine lacks what was asked for.
struct DeviceError : Error {
  explicit DeviceError(const std::string& sentence) : Error(ExitCode::Failure, sentence) {}
};
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& sentence) : Error(ExitCode::NoCheckpoint, sentence) {}
};
struct DivergedError : Error {
  explicit DivergedError(const std::string& sentence) : Error(ExitCode::Diverged, sentence) {}
};
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& sentence) : Error(ExitCode::OutOfMemory, sentence) {}
};
// Reading or writing failed for reasons of the disk: full, read-only, I/O error, no permission.
struct DiskError : Error {
  explicit DiskError(const std::string& sentence) : Error(ExitCode::Disk, sentence) {}
};
struct PeerLostError : Error {
  explicit PeerLostError(const std::string& sentence) : Error(ExitCode::PeerLost, sentence) {}
};
// Stopped on request after a checkpoint: run the same command again to continue.
struct PreemptedError : Error {
  explicit PreemptedError(const std::string& sentence) : Error(ExitCode::Preempted, sentence) {}
};
// We are wrong. Never reachable from user input.
struct InternalError : Error {
  explicit InternalError(const std::string& sentence) : Error(ExitCode::Failure, sentence) {}
};

}  // namespace redline
