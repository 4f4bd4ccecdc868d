// Completion for bash, zsh and fish: commands, those below them, each one's own flags, and for a command that takes a
// recipe every option (whole paths, bare words, aliases) as --key and as key=, the words it allows, and the recipe's
// presets. The scripts hold plain lists, so completing needs no start of the program, but for presets, which are in the
// recipe.
#include <map>

#include "config/describe.h"
#include "config/schema_index.h"
#include "core/strings.h"

namespace redline::config {

namespace {

struct CompletedFlag {
  std::string sentence;
  bool takes_word = true;
  std::vector<std::string> words;
};

std::map<std::string, CompletedFlag> completed_flags(const std::vector<JobKind>& kinds) {
  std::map<std::string, CompletedFlag> flags;
  const auto add = [&](const std::string& name, const IndexEntry& entry) {
    const Row* row = entry.target != nullptr ? entry.target->row : entry.row;
    if (row == nullptr || ends_with(name, "_target_")) return;
    CompletedFlag flag{row->sentence, !entry.is_boolean(), row->choices};
    // A row without choices may have values that a tuner tries ("2x" of them is relative).
    if (flag.words.empty() && row->type.find("string") != std::string::npos) flag.words = row->tried;
    if (row->type.find("auto|") != std::string::npos) flag.words.push_back("auto");
    if (!flag.takes_word) flag.words = {"false", "true"};
    if (entry.alias != nullptr && entry.alias->convert && flag.takes_word) flag.words.clear();
    if (!flag.takes_word) flags.emplace("no-" + name, CompletedFlag{"Off: " + row->sentence, false, {}});
    flags.emplace(name, std::move(flag));
  };
  for (const JobKind& kind : kinds) {
    const SchemaIndex index(*kind.schema);
    for (const IndexEntry& entry : index.entries()) add(entry.path, entry);
    for (const auto& [word, entry] : index.bare_flags()) add(word, *entry);
  }
  return flags;
}

std::string single_quoted(std::string_view plain) {
  std::string out = "'";
  for (char c : plain) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}
std::string fish_quoted(std::string_view plain) {
  std::string out = "'";
  for (char c : plain) out += c == '\'' ? "\\'" : c == '\\' ? "\\\\" : std::string(1, c);
  return out + "'";
}

std::string function_name(const std::string& program) {
  std::string name = "_" + program;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
}

std::string names_of(const std::vector<std::pair<std::string, std::string>>& list) {
  std::vector<std::string> names;
  for (const auto& [name, sentence] : list) {
    for (const std::string& part : split(name, ',')) names.push_back(trim(part));
  }
  return join(names, " ");
}

// case lines that set `choices` for a flag; shared by bash and zsh (where `words` is taken).
std::string word_cases(const std::map<std::string, CompletedFlag>& flags) {
  std::map<std::string, std::vector<std::string>> by_words;
  for (const auto& [name, flag] : flags) {
    if (!flag.words.empty()) by_words[join(flag.words, " ")].push_back(name);
  }
  std::string out;
  for (const auto& [words, names] : by_words)
    out += "    " + join(names, "|") + ") choices=" + single_quoted(words) + " ;;\n";
  return out;
}
std::string switch_list(const std::map<std::string, CompletedFlag>& flags) {
  std::vector<std::string> names;
  for (const auto& [name, flag] : flags) {
    if (!flag.takes_word) names.push_back("--" + name);
  }
  return join(names, "|");
}

struct CompletedCommand {
  std::string path;  // "data bench"
  const CommandText* text;
};

std::vector<CompletedCommand> all_commands(const std::vector<CommandText>& commands, const std::string& prefix = "") {
  std::vector<CompletedCommand> all;
  for (const CommandText& command : commands) {
    all.push_back({prefix + command.name, &command});
    for (CompletedCommand& below : all_commands(command.commands, prefix + command.name + " "))
      all.push_back(std::move(below));
  }
  return all;
}

std::string names_of(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(command.name);
  return join(names, " ");
}

// case lines over "command" or "command below": its own flags, the commands below it, and whether it takes options.
std::string command_cases(const ProgramText& program) {
  std::string out;
  for (const CompletedCommand& command : all_commands(program.commands))
    out += "    " + single_quoted(command.path) + ") own=" + single_quoted(names_of(command.text->flags)) +
           "; below=" + single_quoted(names_of(command.text->commands)) +
           "; options=" + (command.text->takes_options ? "yes" : "''") + " ;;\n";
  return out;
}

}  // namespace

std::string bash_completion(const std::vector<JobKind>& kinds, const ProgramText& program) {
  const auto flags = completed_flags(kinds);
  const std::string name = function_name(program.name);
  std::string all, keys;
  for (const auto& [flag, facts] : flags) {
    all += "--" + flag + " ";
    if (!starts_with(flag, "no-")) keys += flag + "= ";
  }
  const std::string switches = switch_list(flags);
  std::string out =
      "# bash completion for " + program.name + "; generated by '" + program.name + " options --completion bash'\n";
  out += name + "_words() {\n  local choices=''\n  case \"$1\" in\n" + word_cases(flags) +
         "  esac\n  printf '%s' \"$choices\"\n}\n";
  out += name +
         "() {\n  local cur prev key='' i word command='' recipe='' own='' below='' options=''\n  COMPREPLY=()\n"
         "  cur=${COMP_WORDS[COMP_CWORD]}\n  prev=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n"
         "    case $word in *.yaml|*.yml) recipe=$word ;; esac\n"
         "    case \"$word\" in -*|=) continue ;; esac\n"
         "    case \"${COMP_WORDS[i-1]}\" in --color|--log-format|=) continue ;; esac\n"
         "    if [[ -z $command ]]; then command=$word\n"
         "    elif [[ \" $below \" == *\" $word \"* ]]; then command=\"$command $word\"\n    else continue; fi\n"
         "    case \"$command\" in\n" +
         command_cases(program) +
         "    esac\n  done\n"
         "  # bash splits words at '=': --key=va is three words there\n"
         "  if [[ $cur == '=' ]]; then key=${prev#--}; cur=''\n"
         "  elif [[ $prev == '=' ]]; then key=${COMP_WORDS[COMP_CWORD-2]#--}\n"
         "  elif [[ $prev == --preset && -n $recipe ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$(" +
         program.name +
         " options --presets \"$recipe\" 2>/dev/null)\" -- \"$cur\")); return\n"
         "  elif [[ $prev == --* && -n $options && \" $own \" != *\" $prev \"* ]]; then\n    key=${prev#--}\n";
  if (!switches.empty()) out += "    case \"$prev\" in " + switches + ") key='' ;; esac\n";
  out +=
      "  fi\n"
      "  if [[ -n $key ]]; then\n    local words\n    words=$(" +
      name +
      "_words \"$key\")\n"
      "    if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return; fi\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\")); return\n  fi\n"
      "  if [[ $cur == -* ]]; then\n    local flags=\"$own \"" +
      single_quoted(names_of(program.flags)) + "\n    [[ -n $options ]] && flags+=' '" + single_quoted(all) +
      "\n    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")); return\n  fi\n"
      "  if [[ -z $command ]]; then\n    COMPREPLY=($(compgen -W " +
      single_quoted(names_of(program.commands)) +
      " -- \"$cur\")); return\n  fi\n"
      "  if [[ -n $below ]]; then COMPREPLY=($(compgen -W \"$below\" -- \"$cur\")); return; fi\n"
      "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "  if [[ -n $options && -n $cur && ${#COMPREPLY[@]} -eq 0 ]]; then\n"
      "    compopt -o nospace +o filenames 2>/dev/null\n    COMPREPLY=($(compgen -W " +
      single_quoted(keys) + " -- \"$cur\"))\n  fi\n}\n";
  return out + "complete -o filenames -F " + name + " " + program.name + "\n";
}

std::string zsh_completion(const std::vector<JobKind>& kinds, const ProgramText& program) {
  const auto flags = completed_flags(kinds);
  const auto described = [](const std::string& name, const std::string& sentence) {
    std::string escaped;
    for (char c : name) escaped += c == ':' ? "\\:" : std::string(1, c);
    return "    " + single_quoted(escaped + ":" + sentence) + "\n";
  };
  std::string out =
      "#compdef " + program.name + "\n# zsh completion; generated by '" + program.name + " options --completion zsh'\n";
  out += function_name(program.name) +
         "() {\n  local key choices='' command own='' below='' options=''\n  local -a commands flags\n  commands=(\n";
  for (const CommandText& command : program.commands) out += described(command.name, command.sentence);
  out += "  )\n  flags=(\n";
  for (const auto& [names, sentence] : program.flags) {
    for (const std::string& name : split(names, ',')) out += described(trim(name), sentence);
  }
  for (const auto& [name, flag] : flags) out += described("--" + name, flag.sentence);
  out += "  )\n  for command in \"${words[2]}\" \"${words[2]} ${words[3]}\"; do\n    case \"$command\" in\n" +
         command_cases(program) +
         "    esac\n  done\n"
         "  key=${words[CURRENT-1]#--}\n"
         "  if [[ ${words[CURRENT]} == *=* ]]; then key=${${words[CURRENT]#--}%%=*}; compset -P '*='; fi\n";
  if (const std::string switches = switch_list(flags); !switches.empty()) {
    out += "  case \"${words[CURRENT-1]}\" in " + switches + ") [[ ${words[CURRENT]} == *=* ]] || key='' ;; esac\n";
  }
  out += "  if [[ ${words[CURRENT-1]} == --preset ]]; then\n    compadd -- ${=\"$(" + program.name +
         " options --presets ${words[(r)*.y(a|)ml]} 2>/dev/null)\"}; return\n  fi\n"
         "  case \"$key\" in\n" +
         word_cases(flags) +
         "  esac\n"
         "  if [[ -n $choices ]]; then compadd -- ${=choices}; return; fi\n"
         "  if (( CURRENT == 2 )); then _describe -t commands command commands && return; fi\n"
         "  if (( CURRENT == 3 )) && [[ -n $below ]]; then compadd -- ${=below}; return; fi\n"
         "  if [[ ${words[CURRENT]} == -* ]]; then\n    compadd -- ${=own}\n"
         "    [[ -n $options ]] && _describe -t flags flag flags\n    return\n  fi\n"
         "  _files\n}\n";
  return out + "compdef " + function_name(program.name) + " " + program.name + "\n";
}

namespace {

// " -s q -l quiet" of "-q,--quiet".
std::string fish_names(const std::string& names) {
  std::string out;
  for (const std::string& part : split(names, ',')) {
    const std::string name = trim(part);
    out += starts_with(name, "--") ? " -l " + name.substr(2) : " -s " + name.substr(name.find_first_not_of('-'));
  }
  return out;
}

}  // namespace

std::string fish_completion(const std::vector<JobKind>& kinds, const ProgramText& program) {
  const std::string start = "complete -c " + program.name;
  std::string out = "# fish completion; generated by '" + program.name + " options --completion fish'\n";
  std::string with_options;
  for (const CommandText& command : program.commands) {
    out += start + " -n __fish_use_subcommand -f -a " + command.name + " -d " + fish_quoted(command.sentence) + "\n";
    if (command.takes_options) with_options += " " + command.name;
    const std::string seen = " -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const auto& [names, sentence] : command.flags)
      out += start + seen + fish_names(names) + " -d " + fish_quoted(sentence) + "\n";
    for (const CommandText& below : command.commands) {
      if (below.takes_options) with_options += " " + below.name;
      out += start + seen + " -f -a " + below.name + " -d " + fish_quoted(below.sentence) + "\n";
      for (const auto& [names, sentence] : below.flags)
        out += start + " -n '__fish_seen_subcommand_from " + below.name + "'" + fish_names(names) + " -d " +
               fish_quoted(sentence) + "\n";
    }
  }
  for (const auto& [names, sentence] : program.flags)
    out += start + fish_names(names) + " -d " + fish_quoted(sentence) + "\n";
  const std::string job = with_options.empty() ? "" : " -n '__fish_seen_subcommand_from" + with_options + "'";
  for (const auto& [name, flag] : completed_flags(kinds)) {
    out += start + job + " -l " + name;
    if (flag.takes_word) out += flag.words.empty() ? " -r" : " -x -a " + fish_quoted(join(flag.words, " "));
    out += " -d " + fish_quoted(flag.sentence) + "\n";
  }
  return out;
}

}  // namespace redline::config
