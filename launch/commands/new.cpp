// consist new KIND NAME: a part of one's own, in a folder that builds, trains and passes its checks before anything is changed.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/model.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/cluster/shell.h"
#include "launch/commands/commands.h"
#include "launch/templates/new_part.h"
#include "launch/templates/sdk_folder.h"

namespace consist::commands {
namespace {

namespace fs = std::filesystem;

constexpr RunOption new_options[] = {
    valued("into", OptionKind::text, "", "FOLDER", "the folder to write, which must be empty or not there (default: NAME)")};

void require_free_plugin_name(const std::string& name, const PluginHost& host) {
  if (name == next_token)
    throw UsageError("'" + name + "' is the loss that models make themselves, which --loss means by it; take another name");
  for (const PluginFile& file : host.files()) {
    if (file.name == name)
      throw UsageError("'" + name + "' is the name of a part already (" + file.kind + ", " + file.path.string() +
                       "); take another name");
  }
}

/// Throws UsageError for a name that a plugin, an op or a preset of this installation has.
void require_free_name(const launch::PartTemplate& part, const std::string& name) {
  PluginHost host({});
  require_free_plugin_name(name, host);
  const std::string model = part.kind == "model" ? name : launch::with_name(part.beside, name);
  if (!part.beside.empty()) require_free_plugin_name(model, host);
  if (part.kind == "op") {
    const std::string op = launch::with_name("{snake}", name);
    if (registry().find(op) != nullptr || registry().find(op + "_grad") != nullptr)
      throw UsageError("there is an op '" + op + "' already (docs/ops.md); take another name");
  }
  if (model.empty()) return;
  for (const std::string& plugin : host.names("model")) {
    for (const ModelPreset& preset : host.make<Model>("model", plugin, {})->presets()) {
      if (preset.name == model + "-tiny")
        throw UsageError("the model '" + plugin + "' has a preset '" + preset.name + "' already; take another name");
    }
  }
}

/// Throws UsageError unless the folder is not there, or empty.
void require_empty(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) throw UsageError(folder.string() + " is there and no folder; --into FOLDER names another");
  const bool empty = fs::is_empty(folder, error);
  if (error) throw SystemError("the folder " + folder.string() + " cannot be listed: " + error.message());
  if (!empty)
    throw UsageError("the folder " + folder.string() +
                     " is not empty, and nothing in it is replaced; --into FOLDER names another");
}

void write_files(const fs::path& folder, const std::map<std::string, std::string>& files) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw SystemError("cannot make the folder " + folder.string() + ": " + error.message() + "; --into FOLDER names another");
  for (const auto& [name, text] : files) write_output({.option = "--into", .path = (folder / name).string()}, text);
}

int make_new(const CommandLine& line) {
  if (line.operands.size() != 2)
    throw UsageError("consist new needs a kind and a name, given are " + std::to_string(line.operands.size()) +
                     " words; such as: consist new strategy my-average");
  const launch::PartTemplate& part = launch::part_template(line.operands[0]);
  const std::string& name = line.operands[1];
  launch::check_part_name(name);
  const fs::path folder = line.has("into") ? line.text("into") : name;
  if (folder.empty()) throw UsageError("--into is empty; it names the folder to write");
  require_empty(folder);
  const fs::path sdk = launch::sdk_folder();
  require_free_name(part, name);
  const std::map<std::string, std::string> files = launch::files_of_part(part, name, sdk / "share" / "consist" / "examples");
  write_files(folder, files);
  std::printf("%s '%s' in %s:", part.kind.data(), name.c_str(), printable(folder.string()).c_str());
  for (const auto& [file, text] : files) std::printf(" %s", file.c_str());
  std::printf(
      "\nIt builds, checks and trains as README.md says:\n  cd %s && cmake -B build -DCMAKE_PREFIX_PATH=%s && cmake --build "
      "build\n"
      "  ctest --test-dir build --output-on-failure\n",
      printable(launch::shell_word(folder.string())).c_str(), printable(launch::shell_word(sdk.string())).c_str());
  return 0;
}

}  // namespace

constinit const Command new_command{
    .name = "new",
    .summary = "write a part of your own that builds, trains and passes its checks",
    .usage = "KIND NAME [--into FOLDER]",
    .about =
        "Writes a folder with a small part that works, to be changed: CMakeLists.txt, sources, a README.md with\n"
        "the commands that build it and check it, and tests for ctest. KIND is strategy, optimizer, op (with\n"
        "kernels and a model that uses it), model, loss, dataset, observer or schedule. NAME is words of\n"
        "small letters and digits, joined by '-', that no part of this installation has. Nothing is overwritten.\n",
    .own = new_options,
    .notes = "It is built against the SDK of this installation (consist sdk); docs/plugins.md describes the kinds.\n",
    .example = "consist new strategy my-average\n",
    .operand = "strategy|optimizer|op|model|loss|dataset|observer|schedule",
    .run = make_new};

}  // namespace consist::commands
