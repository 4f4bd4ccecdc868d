// The parts of `redline data`: what its subcommands read, and the ones that prepare data.
#pragma once

#include "app/command.h"
#include "data/build_loader.h"

namespace redline::app {

// The data of a job, and what its task wants of it.
struct DataJob {
  data::DatasetConfig dataset;
  data::TaskNeeds needs;
};

struct DataArguments {
  ConfigArguments config;
  std::string kind;  // of a file that is only a data set
  bool validation = false;
};

// CONFIG is a job, or a file that holds only the keys of a data set: then the kind is told by --kind or by the names.
void add_data_arguments(CLI::App& command, DataArguments& arguments);
DataJob read_data_job(const DataArguments& arguments, const CLI::App& command);

// index, tar, synth.
void add_data_preparation(CLI::App& parent, const Globals& globals);

}  // namespace redline::app
