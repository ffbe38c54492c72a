// consist man: pages for man, from the tables of commands and options.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "core/files/write_text.h"
#include "launch/child_process.h"
#include "launch/commands/commands.h"
#include "launch/completion/command_lines.h"
#include "launch/completion/man_page.h"
#include "launch/own_options.h"

namespace consist::commands {
namespace {

constexpr const char* help =
    "usage: consist man [COMMAND] | --output FOLDER\n\n"
    "Prints the page of a command in roff, the language of man; without a command that of consist. The pages are\n"
    "installed with Consist: man consist-train.\n\n"
    "  --output FOLDER  write the pages of all commands into it, which is made if it is not there\n\n"
    "example: consist man train | man -l -\n";

constexpr RunOption own_options[] = {
    help_option,
    {.spec = {"output", OptionKind::text, "", "write the pages of all commands into it"}, .value = "FOLDER"},
};

/// What `consist COMMAND --help` prints.
std::string help_of(const std::string& command) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < command.size();) {
    const std::size_t end = std::min(command.find(' ', begin), command.size());
    words.push_back(command.substr(begin, end - begin));
    begin = end + 1;
  }
  words.emplace_back("--help");
  std::string text;
  const int status = launch::run_child(words, [&](const std::string& line) { text += line + "\n"; });
  if (status != 0) throw SystemError("consist " + command + " --help failed with status " + std::to_string(status));
  return text;
}

/// Of "bench expect" that of "bench".
std::string summary_of(const std::string& command) {
  for (const Command& known : table) {
    if (known.summary != nullptr && command.substr(0, command.find(' ')) == known.name) return known.summary;
  }
  return {};
}

std::string page_of(const std::string& command) {
  if (!command.empty()) return launch::man_page(command, summary_of(command), help_of(command), CONSIST_VERSION);
  std::vector<std::pair<std::string, std::string>> all;
  for (const launch::CommandLine& line : launch::command_lines())
    all.emplace_back(line.command, summary_of(std::string(line.command)));
  return launch::overview_page(all, help_of(""), CONSIST_VERSION);
}

}  // namespace

int man(const Arguments& arguments) {
  const OwnOptions given = read_own_options("man", arguments, own_options);
  if (given.flag("help")) {
    std::fputs(help, stdout);
    return 0;
  }
  std::string command;
  for (const std::string& word : given.operands) command += (command.empty() ? "" : " ") + word;
  if (!given.has("output")) {
    if (!command.empty() && launch::find_command_line(command) == nullptr)
      throw UsageError("there is no command '" + command + "' that has a page; see consist --help");
    std::fputs(page_of(command).c_str(), stdout);
    return 0;
  }
  if (!command.empty()) throw UsageError("--output writes the pages of all commands; leave '" + command + "' out");
  const std::filesystem::path folder = given.text("output");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError("cannot make the folder " + folder.string() + ": " + error.message());
  write_text((folder / "consist.1").string(), page_of(""));
  for (const launch::CommandLine& line : launch::command_lines()) {
    const std::string name(line.command);
    write_text((folder / (launch::page_name(name) + ".1")).string(), page_of(name));
  }
  return 0;
}

}  // namespace consist::commands
