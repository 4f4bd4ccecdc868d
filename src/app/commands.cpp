// The list of subcommands. A new command is a file and one line here.
#include "app/command.h"

namespace redline::app {

void add_train_command(CLI::App& program, const Globals& globals);
void add_launch_command(CLI::App& program, const Globals& globals);
void add_scale_command(CLI::App& program, const Globals& globals);
void add_eval_command(CLI::App& program, const Globals& globals);
void add_predict_command(CLI::App& program, const Globals& globals);
void add_probe_command(CLI::App& program, const Globals& globals);
void add_compile_command(CLI::App& program, const Globals& globals);
void add_data_command(CLI::App& program, const Globals& globals);
void add_doctor_command(CLI::App& program, const Globals& globals);
void add_tune_command(CLI::App& program, const Globals& globals);
void add_race_command(CLI::App& program, const Globals& globals);
void add_certify_command(CLI::App& program, const Globals& globals);
void add_report_command(CLI::App& program, const Globals& globals);
void add_lr_command(CLI::App& program, const Globals& globals);
void add_runs_command(CLI::App& program, const Globals& globals);
void add_watch_command(CLI::App& program, const Globals& globals);
void add_compare_command(CLI::App& program, const Globals& globals);
void add_sample_command(CLI::App& program, const Globals& globals);
void add_verify_command(CLI::App& program, const Globals& globals);
void add_diff_command(CLI::App& program, const Globals& globals);
void add_convert_command(CLI::App& program, const Globals& globals);
void add_chaos_command(CLI::App& program, const Globals& globals);
void add_machine_command(CLI::App& program, const Globals& globals);
void add_options_command(CLI::App& program, const Globals& globals);

// As --help lists them: what every job needs first.
const std::vector<AddCommand>& commands() {
  static const std::vector<AddCommand> list = {
      add_train_command,   add_runs_command,    add_watch_command,   add_report_command,  add_eval_command,
      add_predict_command, add_sample_command,  add_convert_command, add_data_command,    add_lr_command,
      add_doctor_command,  add_tune_command,    add_race_command,    add_certify_command, add_compare_command,
      add_compile_command, add_launch_command,  add_scale_command,   add_verify_command,  add_diff_command,
      add_chaos_command,   add_machine_command, add_options_command, add_probe_command,
  };
  return list;
}

}  // namespace redline::app
