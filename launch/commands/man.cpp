// consist man: pages for man, from the tables of commands and options.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "consist/error.h"
#include "consist/files.h"
#include "launch/cli/man_page.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

constexpr RunOption man_options[] = {
    valued("output", OptionKind::text, "", "FOLDER", "write the pages of all commands into it, which is made if it is not there"),
    a_switch("overwrite", "replace pages that are there"),
};

int man(const CommandLine& line) {
  std::string name;
  for (const std::string& word : line.operands) name += (name.empty() ? "" : " ") + word;
  if (!line.has("output")) {
    const Command* const command = find_command(table(), name);
    if (!name.empty() && (command == nullptr || command->is_hidden()))
      throw UsageError("there is no command '" + name + "' that has a page; see consist --help");
    std::fputs(
        (name.empty() ? launch::overview_page(table(), CONSIST_VERSION) : launch::man_page(*command, CONSIST_VERSION)).c_str(),
        stdout);
    return 0;
  }
  if (!name.empty()) throw UsageError("--output writes the pages of all commands; leave '" + name + "' out");
  const std::filesystem::path folder = line.text("output");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError("cannot make the folder " + folder.string() + ": " + error.message());
  const auto write = [&](const std::string& page, const std::string& text) {
    write_output({"--output", (folder / (page + ".1")).string(), line.flag("overwrite")}, text);
  };
  write("consist", launch::overview_page(table(), CONSIST_VERSION));
  for (const Command* command : table()) {
    if (!command->is_hidden()) write(launch::page_name(command->name), launch::man_page(*command, CONSIST_VERSION));
  }
  return 0;
}

}  // namespace

constinit const Command man_command{
    .name = "man",
    .summary = "print a command's page for man",
    .usage = "[COMMAND] | --output FOLDER [--overwrite]",
    .about =
        "Prints the page of a command in roff, the language of man; without a command that of consist. The pages are\n"
        "installed with Consist: man consist-train.\n",
    .own = man_options,
    .example = "consist man train | man -l -\n",
    .operand = "COMMAND",
    .run = man};

}  // namespace consist::commands
