#include "launch/cluster/cluster_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/base/number.h"
#include "core/config/config_file.h"
#include "core/config/option_value.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* example =
    "\nA file needs little:\n  [slurm]\n  partition = \"gpu\"\n  nodes = 2\n  gpus-per-node = 8\n  folder = "
    "\"/shared/me/consist\""
    "\ndocs/clusters.md has all keys";

/// A key of [slurm] with one value.
struct SlurmKey {
  OptionSpec spec;
  void (*set)(SlurmSettings& settings, const std::string& text);
};

template <auto Member>
void take_text(SlurmSettings& settings, const std::string& text) {
  settings.*Member = text;
}
template <auto Member>
void take_number(SlurmSettings& settings, const std::string& text) {
  parse_number(text, settings.*Member);
}

using S = SlurmSettings;

constexpr SlurmKey slurm_keys[] = {
    {{"partition", OptionKind::text, "", ""}, take_text<&S::partition>},
    {{"account", OptionKind::text, "", ""}, take_text<&S::account>},
    {{"time", OptionKind::text, "", ""}, take_text<&S::time>},
    {{"folder", OptionKind::text, "", ""}, take_text<&S::folder>},
    {{"consist", OptionKind::text, "", ""}, take_text<&S::consist>},
    {{"image", OptionKind::text, "", ""}, take_text<&S::image>},
    {{"nodes", OptionKind::integer, "1", "", "1..65536"}, take_number<&S::nodes>},
    {{"ranks-per-node", OptionKind::integer, "1", "", "1..1024"}, take_number<&S::ranks_per_node>},
    {{"gpus-per-node", OptionKind::integer, "0", "", "0..1024"}, take_number<&S::gpus_per_node>},
    {{"cpus-per-rank", OptionKind::integer, "0", "", "0..4096"}, take_number<&S::cpus_per_rank>},
    {{"max-jobs", OptionKind::integer, "0", "", "0..100000"}, take_number<&S::max_jobs>},
    {{"exclusive", OptionKind::flag, "true", ""},
     [](S& settings, const std::string& text) { settings.exclusive = text == "true"; }},
};
constexpr OptionSpec a_text{"", OptionKind::text, "", ""};
constexpr const char* lists[] = {"lines", "before"};

[[noreturn]] void refuse(const ConfigEntry& entry, const std::string& why) {
  throw UsageError(entry.said + " " + why);
}

[[noreturn]] void refuse_key(const ConfigEntry& entry) {
  std::vector<KnownName> known;
  for (const SlurmKey& key : slurm_keys) known.push_back({std::string("slurm.") + key.spec.name});
  for (const char* list : lists) known.push_back({std::string("slurm.") + list});
  refuse(entry, "is no key of a cluster's file; [slurm] and [slurm.environment] are its tables (docs/clusters.md)." +
                    did_you_mean(entry.name, known));
}

/// Values end up in lines of the batch script, where a blank or a quote would begin something else.
void check_word(const ConfigEntry& entry, const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,=@#[]";
  if (text.empty()) refuse(entry, "is empty; leave it out, or give a value");
  const std::size_t wrong = text.find_first_not_of(plain);
  if (wrong != std::string::npos)
    refuse(entry, "has the character '" + text.substr(wrong, 1) + "'; letters, digits and " + std::string(plain.substr(62)) +
                      " are what an #SBATCH line holds as they are");
}

std::vector<std::string> list_of(const ConfigEntry& entry) {
  std::vector<std::string> texts;
  for (const auto& value : entry.value.is_array() ? entry.value : nlohmann::json::array({entry.value})) {
    texts.push_back(option_text(a_text, value, entry));
    if (texts.back().find_first_of("\n\r") != std::string::npos) refuse(entry, "has a line break within a line");
  }
  return texts;
}

void take_lines(const ConfigEntry& entry, SlurmSettings& settings) {
  settings.lines = list_of(entry);
  for (const std::string& line : settings.lines) {
    if (!line.starts_with("-")) refuse(entry, "has '" + line + "'; its lines are options of sbatch and begin with a dash");
    for (const char* ours : {"--nodes", "-N", "--ntasks", "-n", "--output", "-o", "--error", "-e", "--array", "-a"}) {
      const std::string option(ours);
      const bool is_that = line == option || line.starts_with(option + "=") || line.starts_with(option + " ") ||
                           (option.size() == 2 && line.starts_with(option));
      if (is_that) refuse(entry, "has '" + line + "', which follows from the run and from nodes, ranks-per-node and folder");
    }
  }
}

void take_variable(const ConfigEntry& entry, const std::string& name, SlurmSettings& settings) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  if (name.empty() || name.find_first_not_of(letters) != std::string::npos || (name[0] >= '0' && name[0] <= '9'))
    refuse(entry, "is no name of an environment variable");
  if (name == "CONSIST_JOB_TOKEN" || name == "CONSIST_JOB_TOKEN_FILE")
    refuse(entry, "is made anew for each job, and others could read it here; leave it out");
  std::string text = entry.value.is_string() ? entry.value.get<std::string>() : entry.value.dump();
  if (text.find('\n') != std::string::npos) refuse(entry, "has a line break");
  settings.environment.emplace_back(name, std::move(text));
}

void take(const ConfigEntry& entry, SlurmSettings& settings) {
  constexpr std::string_view table = "slurm.", variables = "slurm.environment.";
  if (entry.name.starts_with(variables)) return take_variable(entry, entry.name.substr(variables.size()), settings);
  if (!entry.name.starts_with(table)) refuse_key(entry);
  const std::string name = entry.name.substr(table.size());
  if (name == "lines") return take_lines(entry, settings);
  if (name == "before") {
    settings.before = list_of(entry);
    return;
  }
  const auto key =
      std::find_if(std::begin(slurm_keys), std::end(slurm_keys), [&](const SlurmKey& k) { return name == k.spec.name; });
  if (key == std::end(slurm_keys)) refuse_key(entry);
  const std::string text = legal_value(key->spec, option_text(key->spec, entry.value, entry), entry.said);
  if (key->spec.kind == OptionKind::text) check_word(entry, text);
  key->set(settings, text);
}

std::string own_executable() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) throw SystemError("cannot tell where this executable is: " + error.message());
  return path.string();
}

std::string file_of_user() {
  if (const char* const folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0')
    return (fs::path(folder) / "consist" / "cluster.toml").string();
  const char* const home = std::getenv("HOME");
  return home == nullptr ? "" : (fs::path(home) / ".config" / "consist" / "cluster.toml").string();
}

std::string find_cluster_file(const CommandLine& line) {
  if (line.has("cluster")) return line.text("cluster");
  const std::string here = "cluster.toml", of_user = file_of_user();
  for (const std::string& path : {here, of_user}) {
    if (std::error_code ignored; !path.empty() && fs::exists(path, ignored)) return path;
  }
  throw UsageError("--on " + line.value("on") + " needs the cluster's file, and there is neither ./cluster.toml nor " +
                   (of_user.empty() ? "one of yours (HOME is not set)" : of_user) + "; name one with --cluster FILE." + example);
}

}  // namespace

SlurmSettings read_slurm_settings(const CommandLine& line) {
  SlurmSettings settings;
  settings.file = find_cluster_file(line);
  settings.ranks_per_node = 0;
  for (const ConfigEntry& entry : read_config_file(settings.file)) take(entry, settings);
  if (settings.ranks_per_node == 0) settings.ranks_per_node = std::max(1, settings.gpus_per_node);
  if (settings.folder.empty())
    throw UsageError(settings.file +
                     " has no slurm.folder: a folder that all nodes and this machine see, for scripts, logs and archives." +
                     example);
  if (!fs::path(settings.folder).is_absolute())
    throw UsageError(settings.file + ": slurm.folder is " + settings.folder +
                     "; it must begin with /, as nodes have other working folders");
  settings.folder = fs::path(settings.folder).lexically_normal().string();
  while (settings.folder.size() > 1 && settings.folder.back() == '/') settings.folder.pop_back();
  if (settings.consist.empty()) settings.consist = settings.image.empty() ? own_executable() : "consist";
  return settings;
}

bool is_on_cluster(const CommandLine& line) {
  const bool on = line.value("on") != "here";
  for (const char* of_cluster : {"cluster", "dry-run"}) {
    if (!on && line.has(of_cluster))
      throw UsageError(std::string("--") + of_cluster + " is for runs on a cluster; give --on slurm, too, or leave it out");
  }
  return on;
}

}  // namespace consist::launch
