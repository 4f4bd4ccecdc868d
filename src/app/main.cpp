// redline: parses the command line, runs one command, and maps what was thrown to an exit code. The only catch of
// errors in the program (words that cannot be parsed: usage_errors.cpp).
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>

#include "app/command.h"
#include "app/standard_streams.h"
#include "app/version.h"
#include "core/error.h"
#include "core/log.h"
#include "device/startup_memory.h"

using namespace redline;

namespace {

void add_globals(CLI::App& command, app::Globals& globals, const std::string& group) {
  command.add_flag("--json", globals.json, "Answer as JSON on stdout")->group(group);
  command.add_flag("-v,--verbose", globals.verbose, "Say more")->group(group);
  command.add_flag("-q,--quiet", globals.quiet, "Only warnings and errors")->group(group);
  command.add_option("--color", globals.color, "auto, always or never (NO_COLOR and TERM=dumb are obeyed)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group(group);
  command.add_option("--log-format", globals.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group(group);
}

// A command that takes overrides keeps the words it does not know, so they never fall through to the program: its
// options are repeated there, unlisted.
void share_globals(CLI::App& parent, app::Globals& globals) {
  for (CLI::App* command : parent.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    share_globals(*command, globals);
    if (!command->get_allow_extras()) continue;
    command->fallthrough(false);
    add_globals(*command, globals, "");
  }
}

int run(int argc, char** argv) {
  CLI::App program("redline makes deep-learning training fast, and proves it.", "redline");
  app::Globals globals;
  add_globals(program, globals, "Everywhere");
  program.set_version_flag("--version", app::version_text);
  program.option_defaults()->always_capture_default();
  program.require_subcommand(0, 1);
  program.fallthrough();
  program.parse_complete_callback([&] {
    app::apply_globals(globals);
    device::release_startup_memory();
  });
  for (app::AddCommand add : app::commands()) add(program, globals);
  share_globals(program, globals);
  app::add_help(program);
  return app::parse_words(program, {argv + std::min(argc, 1), argv + argc});
}

int run_to_exit_code(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const app::ExitWith& answer) {
    return answer.code;
  } catch (const Error& error) {
    log_error(error.what());
    return static_cast<int>(error.code());
  } catch (const c10::OutOfMemoryError& error) {
    log_error(std::string("Out of memory for tensors (") + error.what_without_backtrace() +
              "). Use smaller batches or a smaller model, or raise trainer.memory_limit where there is more.");
    return static_cast<int>(ExitCode::OutOfMemory);
  } catch (const std::bad_alloc&) {
    log_error(
        "Out of memory outside the tensors redline accounts for; lower num_workers, prefetch_factor or "
        "max_buffer_bytes.");
    return static_cast<int>(ExitCode::OutOfMemory);
  } catch (const std::exception& error) {
    log_error(error.what());
    return static_cast<int>(ExitCode::Failure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  app::prepare_streams();
  return app::finish_output(run_to_exit_code(argc, argv));
}
