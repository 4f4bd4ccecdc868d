// redline data index|tar|synth: prepares training data.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/data_job.h"
#include "app/json_text.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/shard_writer.h"
#include "data/synth.h"
#include "data/tar_index.h"

namespace redline::app {

namespace {

using Json = nlohmann::ordered_json;

void run_index(const std::vector<std::string>& tars, const Globals& globals) {
  Json json;
  json["schema_version"] = 1;
  json["tars"] = Json::array();
  for (const std::string& name : tars) {
    const data::DataFile file = data::open_user_file(name);
    const data::TarIndex index = data::TarIndex::load(file, name);
    const size_t samples = data::group_by_stem(index).size();
    json["tars"].push_back(
        {{"tar", name}, {"members", index.size()}, {"samples", samples}, {"fingerprint", hex64(index.fingerprint())}});
    if (!globals.json) fmt::print("{}: {} members, {} samples\n", printable(name), index.size(), samples);
  }
  if (globals.json) fmt::print("{}\n", json_text(json, 1));
}

struct TarArguments {
  std::vector<std::string> manifests;
  std::string out, format = "nemo";
  data::ShardOptions options;
};

void run_tar(const TarArguments& arguments, const Globals& globals) {
  data::ShardOptions options = arguments.options;
  options.format = arguments.format == "nemo" ? data::ShardFormat::Nemo : data::ShardFormat::WebDataset;
  const data::ShardResult result =
      data::write_shards({arguments.manifests.begin(), arguments.manifests.end()}, arguments.out, options);
  if (globals.json) {
    fmt::print("{}\n", json_text(Json{{"schema_version", 1},
                                      {"out", arguments.out},
                                      {"shards", result.num_shards},
                                      {"entries", result.num_entries},
                                      {"files", result.num_files},
                                      {"dropped", result.num_dropped},
                                      {"bytes", result.num_bytes}},
                                 1));
    return;
  }
  fmt::print("{} entries ({} files, {}) in {} tars in {}\n", result.num_entries, result.num_files,
             format_bytes(result.num_bytes), result.num_shards, printable(arguments.out));
  if (result.num_dropped > 0)
    fmt::print("{} entries are left out so that the shards are equal, as NeMo's are\n", result.num_dropped);
}

struct SynthArguments {
  std::string kind, out;
};

// Every option of the generator is a flag: --num 100 --seed 3 --median_seconds 2.
void run_synth(const SynthArguments& arguments, const CLI::App& command, const Globals& globals) {
  data::SynthConfig config;
  config::Schema schema;
  schema.section("", config);
  config::RequestSource source;
  source.overrides = command.remaining();
  source.overrides.insert(source.overrides.begin(), "kind=" + arguments.kind);
  config::bind(config::read_request(source, schema), schema);
  const data::SynthResult result = data::synthesize(config, arguments.out);
  if (globals.json) {
    fmt::print("{}\n", json_text(Json{{"schema_version", 1},
                                      {"train", result.train.string()},
                                      {"validation", result.validation.string()},
                                      {"noise", result.noise.string()},
                                      {"items", result.num_items},
                                      {"bytes", result.num_bytes}},
                                 1));
    return;
  }
  fmt::print("{} items, {}\n  training   {}\n  validation {}\n", result.num_items, format_bytes(result.num_bytes),
             printable(result.train.string()), printable(result.validation.string()));
  if (!result.noise.empty()) fmt::print("  noise      {}\n", printable(result.noise.string()));
}

}  // namespace

void add_data_preparation(CLI::App& parent, const Globals& globals) {
  auto tars = std::make_shared<std::vector<std::string>>();
  CLI::App* index = parent.add_subcommand("index", "Write the index of tars beside them");
  index->add_option("tars", *tars, "Tar files")->required();
  index->callback([tars, &globals] { run_index(*tars, globals); });

  auto tar_arguments = std::make_shared<TarArguments>();
  CLI::App* tar = parent.add_subcommand("tar", "Pack a manifest's audio into NeMo or WebDataset tars");
  tar->add_option("manifests", tar_arguments->manifests, "NeMo manifests")->required();
  tar->add_option("--out", tar_arguments->out, "Folder to write")->required();
  tar->add_option("--format", tar_arguments->format, "nemo or webdataset")
      ->check(CLI::IsMember({"nemo", "webdataset"}));
  tar->add_option("--num-shards", tar_arguments->options.num_shards, "Number of tars");
  tar->add_flag("--shuffle", tar_arguments->options.shuffle, "Shuffle entries over the shards");
  tar->add_option("--seed", tar_arguments->options.seed, "Seed of the shuffle");
  tar->callback([tar_arguments, &globals] { run_tar(*tar_arguments, globals); });

  auto synth_arguments = std::make_shared<SynthArguments>();
  CLI::App* synth = parent.add_subcommand(
      "synth", "Generate data: speech, sequences, images or nuscenes; other words are options of the generator");
  synth->add_option("kind", synth_arguments->kind, "speech, sequences, images or nuscenes")->required();
  synth->add_option("--out", synth_arguments->out, "Folder to write")->required();
  synth->allow_extras();
  synth->callback([synth_arguments, synth, &globals] { run_synth(*synth_arguments, *synth, globals); });
}

}  // namespace redline::app
