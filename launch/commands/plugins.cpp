// consist plugins [NAME]: what is installed; the options of one plugin.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/model.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/config/run_facts.h"
#include "core/plugin/built_in.h"
#include "core/plugin/host.h"
#include "core/plugin/plugin_call.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

using Json = nlohmann::ordered_json;

/// "2, beside stages of a pipeline 1".
std::string default_text(const OptionSpec& option) {
  const std::string usual = *option.fallback == '\0' ? "empty" : printable(option.fallback);
  const std::string beside = default_of(option, {.stages = 2});
  return beside == option.fallback ? usual : usual + ", beside stages of a pipeline " + printable(beside);
}

constexpr RunOption plugins_options[] = {
    repeated(valued("plugin", OptionKind::text, "", "PATH", "also look for plugins in this file or folder; may be repeated")),
    a_switch("json", "the same as JSON, with all options (docs/json.md)")};

/// A listing waits less long for a plugin than a run does.
std::chrono::milliseconds probe_time() {
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(10), plugin_timeout());
}

/// Throws UsageError that names all if there is none of that name.
void require_plugin(const std::string& name, const PluginHost& host) {
  std::string message = "there is no plugin '" + name + "'. There are:";
  std::vector<KnownName> known;
  for (const PluginFile& file : host.files()) {
    if (file.name == name) return;
    message += (file.name.empty() ? "" : " ") + file.name;
    known.push_back({file.name, file.summary});
  }
  if (const BuiltInPart* const part = find_built_in(name)) {
    throw UsageError("'" + name + "' is built in, no plugin, and has no options: " + std::string(part->summary) +
                     "; consist plugins " + name + " says what may take its place");
  }
  throw UsageError(message + "." + did_you_mean(name, known) + " " + host.looked_in());
}

const char* kind_of(const OptionSpec& option) {
  constexpr const char* kinds[] = {"flag", "integer", "real", "bytes", "text", "choice"};
  return kinds[static_cast<std::size_t>(option.kind)];
}

Json json_of(const OptionSpec& option) {
  return {{"name", option.name},        {"kind", kind_of(option)},
          {"default", option.fallback}, {"default_beside_stages", default_of(option, {.stages = 2})},
          {"legal", option.choices},    {"tunable", option.tunable},
          {"help", option.help}};
}

std::vector<std::string> names_of(const std::vector<HeaderMark>& headers) {
  std::vector<std::string> names;
  for (const HeaderMark& header : headers) {
    if (names.empty() || names.back() != header.name) names.push_back(header.name);
  }
  return names;
}

/// "headers-.../gxx-abi-1017/cxx11-1, of which it includes plugin.h, strategy.h".
std::string built_for(const PluginFile& file) {
  if (file.headers.empty()) return file.fingerprint + ", all public headers";
  std::string text = file.fingerprint + ", of which it includes";
  const char* between = " ";
  for (const std::string& name : names_of(file.headers)) {
    text += between + name;
    between = ", ";
  }
  return text;
}

Json json_of(const PluginFile& file, PluginHost& host) {
  const Availability found_out = host.probe(file, probe_time());
  Json json{{"kind", file.kind},          {"name", file.name},           {"version", file.version},
            {"path", file.path.string()}, {"description", file.summary}, {"available", found_out.reason.empty()},
            {"reason", found_out.reason}, {"presets", Json::array()},    {"options", Json::array()}};
  json["built_for"] = {
      {"fingerprint", file.fingerprint}, {"headers", names_of(file.headers)}, {"changed", changed_headers(file.headers)}};
  if (!found_out.loads) return json;
  if (file.kind == "model") {
    for (const ModelPreset& preset : host.make<Model>("model", file.name, {})->presets())
      json["presets"].push_back({{"name", preset.name}, {"summary", preset.summary}});
  }
  for (const OptionSpec& option : host.option_table(file.kind, file.name)) json["options"].push_back(json_of(option));
  return json;
}

/// All plugins, or those of these names. Throws UsageError for a name that none has.
void print_json(PluginHost& host, const std::vector<std::string>& names) {
  Json document{{"version", 1}, {"plugins", Json::array()}};
  for (const std::string& name : names) require_plugin(name, host);
  for (const PluginFile& file : host.files()) {
    if (names.empty() || std::find(names.begin(), names.end(), file.name) != names.end())
      document["plugins"].push_back(json_of(file, host));
  }
  launch::print_document(document);
}

void print_table(const PluginHost& host) {
  std::size_t name_width = 4, version_width = 7;
  for (const PluginFile& file : host.files()) {
    name_width = std::max(name_width, file.name.size());
    version_width = std::max(version_width, file.version.size());
  }
  const auto width = static_cast<int>(name_width), version = static_cast<int>(version_width);
  std::printf("%-10s %-*s %-*s %-10s %s\n", "KIND", width, "NAME", version, "VERSION", "AVAILABLE", "FILE");
  for (const PluginFile& file : host.files()) {
    const std::string reason = host.unavailable(file, probe_time());
    std::printf("%-10s %-*s %-*s %-10s %s\n", file.kind.empty() ? "?" : file.kind.c_str(), width,
                file.name.empty() ? "?" : file.name.c_str(), version, file.version.c_str(), reason.empty() ? "yes" : "no",
                printable(file.path.string()).c_str());
    if (!reason.empty()) std::printf("%-10s %s\n", "", printable(reason).c_str());
  }
}

void print_presets(const Model& model) {
  const std::vector<ModelPreset> presets = model.presets();
  if (presets.empty()) return;
  std::size_t width = 0;
  for (const ModelPreset& preset : presets) width = std::max(width, preset.name.size());
  std::printf("  presets, for --model:\n");
  for (const ModelPreset& preset : presets) {
    std::printf("    %-*s  %s\n", static_cast<int>(width), printable(preset.name).c_str(), printable(preset.summary).c_str());
  }
}

/// A part that is no plugin, and the plugins that may take its place.
void print_built_in(const BuiltInPart& part, const PluginHost& host) {
  const std::string kind(part.kind), name(part.name), summary(part.summary);
  std::printf("%s %s: %s\n  built in: no plugin, no options\n", kind.c_str(), name.c_str(), summary.c_str());
  std::string others;
  for (const std::string& other : host.names(kind)) others += " " + other;
  std::printf("  in its place, by --%s:%s\n", kind.c_str(), others.empty() ? " none is installed" : others.c_str());
}

void print_options(PluginHost& host, const std::string& name) {
  const BuiltInPart* const part = find_built_in(name);
  if (part != nullptr) return print_built_in(*part, host);
  require_plugin(name, host);
  for (const PluginFile& file : host.files()) {
    if (file.name != name) continue;
    std::printf("%s %s %s: %s\n", file.kind.c_str(), file.name.c_str(), file.version.c_str(), printable(file.summary).c_str());
    const Availability found_out = host.probe(file, probe_time());
    std::printf("  file %s\n  available: %s\n", printable(file.path.string()).c_str(),
                found_out.reason.empty() ? "yes" : printable("no: " + found_out.reason).c_str());
    std::printf("  built for: %s\n", built_for(file).c_str());
    if (!found_out.loads) continue;
    if (file.kind == "model") print_presets(*host.make<Model>("model", file.name, {}));
    const std::vector<OptionSpec> options = host.option_table(file.kind, file.name);
    if (options.empty()) std::printf("  no options\n");
    for (const OptionSpec& option : options) {
      std::string kind = option.choices;
      if (kind.empty()) {
        kind = kind_of(option);
      }
      std::printf("  --%s.%s  (%s, default %s)\n      %s\n", file.name.c_str(), option.name, kind.c_str(),
                  default_text(option).c_str(), printable(option.help).c_str());
      if (*option.tunable != '\0') std::printf("      consist tune chooses between %s\n", printable(option.tunable).c_str());
    }
  }
}

int plugins(const CommandLine& line) {
  PluginHost host(line.texts("plugin"));
  say_plugin_warnings(host);
  if (line.flag("json")) {
    print_json(host, line.operands);
    return 0;
  }
  if (line.operands.empty()) print_table(host);
  for (const std::string& name : line.operands) print_options(host, name);
  return 0;
}

}  // namespace

constinit const Command plugins_command{
    .name = "plugins",
    .summary = "list the parts that are installed, and their options",
    .usage = "[NAME] [--plugin PATH]... [--json]",
    .about =
        "Lists the parts that are installed: kind, name, version, whether they can work on this machine\n"
        "(and if not, why), and the file. With NAME, what that part was built for, its options, and a\n"
        "model's presets.\n",
    .own = plugins_options,
    .example = "consist plugins ddp\n",
    .operand = "PLUGIN",
    .run = plugins};

}  // namespace consist::commands
