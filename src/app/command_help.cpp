// What `redline COMMAND --help` says beside the command's own options: what it takes, and two commands to begin with.
#include <array>

#include "app/command.h"

namespace redline::app {

namespace {

struct HelpRow {
  const char* command;  // "data bench": of a command below a command
  const char* takes;    // after [OPTIONS]; empty: as CLI11 writes it, or as the command's formatter does
  std::array<const char*, 2> examples;
};

constexpr const char* kOverrides = " [key=value | --key value]...";

const std::vector<HelpRow>& help_rows() {
  static const std::vector<HelpRow> rows = {
      {"train",
       "",
       {"redline train recipes/sequence_vae.yaml --preset quick trainer.max_steps=200",
        "redline train mine.yaml --run-dir runs/mine --batch_size 16 trainer.precision=bf16-mixed"}},
      {"launch",
       "-n N -- train CONFIG [key=value | --key value]...",
       {"redline launch -n 2 -- train recipes/nest_fast-conformer_small.yaml",
        "redline launch -n 4 --grace 60 -- train mine.yaml --run-dir runs/mine"}},
      {"scale",
       "RUN",
       {"redline scale runs/two --ranks 4,8,64 --bandwidth 10Gbit --latency 50us",
        "redline --json scale runs/two --ranks 16 --topology hierarchical"}},
      {"eval",
       "RUN",
       {"redline eval runs/mine --checkpoint best", "redline --json eval runs/mine model.test_ds.path=test.parquet"}},
      {"predict",
       "RUN DATA",
       {"redline predict runs/mine clips.json --out embeddings.parquet",
        "redline predict runs/mine pictures/ --out embeddings.npy --checkpoint best "
        "model.validation_ds.batch_size=64"}},
      {"sample",
       "RUN",
       {"redline sample runs/mine --num 8", "redline --json sample runs/mine --num 2 --sample-seed 7"}},
      {"probe",
       "",
       {"redline probe mine.yaml --weights model.safetensors --batch batch.safetensors --out probe.safetensors",
        "redline probe mine.yaml --weights runs/mine/model.safetensors --batch batch.safetensors --steps 5 --out "
        "p.safetensors"}},
      {"data", "", {"redline data stats mine.yaml", "redline data synth speech --out data/speech --num 200 --seed 1"}},
      {"data order", "", {"redline data order mine.yaml", "redline --json data order mine.yaml --epoch 3"}},
      {"data stats", "", {"redline data stats mine.yaml", "redline data stats mine.yaml --validation"}},
      {"data bench", "", {"redline data bench mine.yaml", "redline --json data bench mine.yaml --workers 4"}},
      {"data index",
       "TAR...",
       {"redline data index audio_0.tar", "redline data index tars/audio_0.tar tars/audio_1.tar"}},
      {"data tar",
       "MANIFEST... --out DIR",
       {"redline data tar manifest.json --out tars --num-shards 8",
        "redline data tar manifest.json --out tars --format webdataset"}},
      {"data synth",
       "speech|sequences|images|nuscenes --out DIR",
       {"redline data synth speech --out data/speech --num 200 --seed 1",
        "redline data synth images --out data/pictures --num 500 --num_classes 10"}},
      {"doctor",
       "",
       {"redline doctor mine.yaml --steps 30",
        "redline doctor recipes/nest_fast-conformer_small.yaml --html doctor.html"}},
      {"tune",
       "",
       {"redline tune mine.yaml --budget 10m --out mine.tuned.yaml",
        "redline tune mine.yaml --budget 30m --allow numerics,order --memory 8GiB"}},
      {"lr", "", {"redline lr mine.yaml", "redline lr mine.yaml --from 1e-6 --to 0.1 --steps 200"}},
      {"race",
       "",
       {"redline race mine.yaml --with trainer.precision=bf16-mixed",
        "redline race mine.yaml --with \"model.train_ds.num_workers=4 model.train_ds.prefetch_factor=4\" --blocks 12"}},
      {"certify",
       "",
       {"redline certify mine.yaml --with trainer.precision=bf16-mixed --pairs 8",
        "redline certify mine.yaml --with model.train_ds.batch_size=16"}},
      {"report", "RUN...", {"redline report runs/mine --html mine.html", "redline report runs/before runs/after"}},
      {"compare",
       "BEFORE AFTER",
       {"redline compare runs/before runs/after --fail-on 3%", "redline --json compare runs/before runs/after"}},
      {"watch", "RUN...", {"redline watch runs/mine", "redline watch a b --every 5 | tee watched.txt"}},
      {"compile",
       "",
       {"redline compile recipes/sequence_vae.yaml --preset quick",
        "redline --json compile mine.yaml --steps 64 trainer.precision=bf16-mixed"}},
      {"runs", "[FOLDER]", {"redline runs", "redline runs runs/mine --sort loss"}},
      {"verify",
       "RUN|CHECKPOINT|FILE",
       {"redline verify runs/mine", "redline --json verify runs/mine/checkpoints/step-00000100"}},
      {"diff", "A B", {"redline diff runs/a runs/b", "redline --json diff runs/a runs/b"}},
      {"convert",
       "[nemo|torch|safetensors] IN OUT",
       {"redline convert nemo MODEL.nemo model.safetensors", "redline convert runs/mine model.pt --ema"}},
      {"chaos",
       "",
       {"redline chaos recipes/sequence_vae.yaml --kills 5 trainer.max_steps=40 model.d_model=64",
        "redline chaos mine.yaml --kills 20 --seed-of-kills 3"}},
      {"machine", "", {"redline machine", "redline --json machine"}},
      {"options",
       "",
       {"redline options --markdown > options.md",
        "redline options --completion bash > ~/.local/share/bash-completion/completions/redline"}},
  };
  return rows;
}

// A command's own words, and where it takes overrides, that it does.
class OwnUsage : public CLI::Formatter {
 public:
  explicit OwnUsage(std::string takes) : takes_(std::move(takes)) {}
  std::string make_usage(const CLI::App* command, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] " + takes_ + (command->get_allow_extras() ? kOverrides : "") + "\n";
  }

 private:
  std::string takes_;
};

void add_help_below(CLI::App& parent, const std::string& prefix) {
  for (CLI::App* command : parent.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    const std::string name = prefix + command->get_name();
    for (CLI::Option* option : command->get_options())
      if (option->get_default_str() == "[]") option->default_str("");  // an empty list says nothing
    for (const HelpRow& row : help_rows()) {
      if (name != row.command) continue;
      if (*row.takes != '\0') command->formatter(std::make_shared<OwnUsage>(row.takes));
      std::string footer = command->get_footer();
      if (!footer.empty()) footer += "\n\n";
      footer += "Examples:";
      for (const char* example : row.examples) footer += std::string("\n  ") + example;
      command->footer(footer);
    }
    add_help_below(*command, name + " ");
  }
}

}  // namespace

void add_help(CLI::App& program) { add_help_below(program, ""); }

}  // namespace redline::app
