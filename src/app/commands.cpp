// The list of subcommands. A new command is a file and one line here.
#include "app/command.h"

namespace redline::app {

const std::vector<AddCommand>& commands() {
  static const std::vector<AddCommand> list = {};
  return list;
}

}  // namespace redline::app
