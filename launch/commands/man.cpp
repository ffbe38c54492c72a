// consist man: pages for man, from the tables of commands and options.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/split.h"
#include "launch/cli/command_lines.h"
#include "launch/cli/man_page.h"
#include "launch/cli/own_options.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

constexpr const char* help =
    "usage: consist man [COMMAND] | --output FOLDER [--overwrite]\n\n"
    "Prints the page of a command in roff, the language of man; without a command that of consist. The pages are\n"
    "installed with Consist: man consist-train.\n\n"
    "  --output FOLDER  write the pages of all commands into it, which is made if it is not there\n"
    "  --overwrite      replace pages that are there\n\n"
    "example: consist man train | man -l -\n";

constexpr RunOption own_options[] = {
    help_option,
    {.spec = {"output", OptionKind::text, "", "write the pages of all commands into it"}, .value = "FOLDER"},
    {.spec = {"overwrite", OptionKind::flag, "false", "replace pages that are there"}},
};

/// While it lives, what this process writes to standard output goes into a file in memory.
class CapturedOutput {
 public:
  CapturedOutput() : file_(::memfd_create("help", MFD_CLOEXEC)), output_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    if (file_ < 0 || output_ < 0 || ::dup2(file_, STDOUT_FILENO) < 0) throw SystemError("cannot redirect standard output");
  }
  ~CapturedOutput() {
    flush();
    ::dup2(output_, STDOUT_FILENO);
    ::close(output_);
    ::close(file_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::string text() {
    flush();
    std::string all;
    char block[4096];
    for (ssize_t got = 0; (got = ::pread(file_, block, sizeof block, static_cast<off_t>(all.size()))) > 0;)
      all.append(block, static_cast<std::size_t>(got));
    return all;
  }

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(stdout);
  }
  int file_, output_;
};

/// The output of `consist COMMAND --help`; for an empty command that of `consist --help`.
std::string help_of(const std::string& command) {
  if (command.empty()) {
    return "usage: consist COMMAND [OPTIONS]\n\nComposes a training run from interchangeable parts, runs it, and measures which "
           "configuration\nis fastest.\n";
  }
  Arguments words;
  for (const std::string_view word : split(command, ' ')) words.emplace_back(word);
  words.emplace_back("--help");
  for (const Command& known : table) {
    if (words.front() != known.name) continue;
    CapturedOutput output;
    known.run({words.begin() + 1, words.end()});
    return output.text();
  }
  return {};
}

/// The summary of a command; for "bench expect" that of "bench".
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
  const auto write = [&](const std::string& name, const std::string& page) {
    write_output({"--output", (folder / name).string(), given.flag("overwrite")}, page);
  };
  write("consist.1", page_of(""));
  for (const launch::CommandLine& line : launch::command_lines()) {
    const std::string name(line.command);
    write(launch::page_name(name) + ".1", page_of(name));
  }
  return 0;
}

}  // namespace consist::commands
