// consist completion: the script by which a shell completes command lines; consist complete: what the scripts ask.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/cli/complete.h"
#include "launch/cli/own_options.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

constexpr const char* help =
    "usage: consist completion bash|zsh|fish\n\n"
    "Prints the script by which a shell completes commands, options, their values (names of parts and machines, presets\n"
    "of models, choices), files and folders. The script asks consist at each key: it knows the plugins that are there.\n\n"
    "  bash   eval \"$(consist completion bash)\" in ~/.bashrc\n"
    "  zsh    source <(consist completion zsh) in ~/.zshrc, behind compinit\n"
    "  fish   consist completion fish > ~/.config/fish/completions/consist.fish\n\n"
    "example: eval \"$(consist completion bash)\"\n";

constexpr RunOption own_options[] = {help_option};

}  // namespace

int completion(const Arguments& arguments) {
  const OwnOptions given = read_own_options("completion", arguments, own_options);
  if (given.flag("help")) {
    std::fputs(help, stdout);
    return 0;
  }
  if (given.operands.size() != 1) throw UsageError("name one shell, bash, zsh or fish (see consist completion --help)");
  std::fputs(launch::completion_script(given.operands.front()).c_str(), stdout);
  return 0;
}

int complete(const Arguments& arguments) {
  if (arguments.empty()) throw UsageError("consist complete is what the scripts of consist completion ask");
  std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  std::size_t cut = 0;
  if (arguments.front() == "bash") words = launch::joined_words(words, cut);
  std::vector<std::string> commands;
  for (const Command& command : table) {
    if (command.summary != nullptr) commands.emplace_back(command.name);
  }
  const launch::Completions found = launch::complete(words, commands);
  for (const std::string& word : found.words) std::printf("%s\n", word.substr(std::min(cut, word.size())).c_str());
  if (found.open) std::puts(":open");
  if (found.files) std::puts(":files");
  if (found.folders) std::puts(":folders");
  return 0;
}

}  // namespace consist::commands
