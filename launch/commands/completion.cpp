// consist completion: the script by which a shell completes command lines; consist complete: what the scripts ask.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/cli/complete.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

int completion(const CommandLine& line) {
  if (line.operands.size() != 1) throw UsageError("name one shell, bash, zsh or fish (see consist completion --help)");
  std::fputs(launch::completion_script(line.operands.front()).c_str(), stdout);
  return 0;
}

int complete(const CommandLine& line) {
  if (line.arguments.empty()) throw UsageError("consist complete is what the scripts of consist completion ask");
  std::vector<std::string> words(line.arguments.begin() + 1, line.arguments.end());
  std::size_t cut = 0;
  if (line.arguments.front() == "bash") words = launch::joined_words(words, cut);
  const launch::Completions found = launch::complete(words, table());
  for (const std::string& word : found.words) std::printf("%s\n", word.substr(std::min(cut, word.size())).c_str());
  if (found.open) std::puts(":open");
  if (found.files) std::puts(":files");
  if (found.folders) std::puts(":folders");
  return 0;
}

}  // namespace

constinit const Command completion_command{
    .name = "completion",
    .summary = "print the script by which bash, zsh or fish completes command lines",
    .usage = "bash|zsh|fish",
    .about =
        "Prints the script by which a shell completes commands, options, their values (names of parts and machines, presets\n"
        "of models, choices), files and folders. The script asks consist at each key: it knows the plugins that are there.\n\n"
        "  bash   eval \"$(consist completion bash)\" in ~/.bashrc\n"
        "  zsh    source <(consist completion zsh) in ~/.zshrc, behind compinit\n"
        "  fish   consist completion fish > ~/.config/fish/completions/consist.fish\n",
    .example = "eval \"$(consist completion bash)\"\n",
    .operand = "bash|zsh|fish",
    .run = completion};

constinit const Command complete_command{.name = "complete", .takes = Takes::words, .run = complete};

}  // namespace consist::commands
