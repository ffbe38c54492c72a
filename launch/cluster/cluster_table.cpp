#include "launch/cluster/cluster_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/base/number.h"
#include "core/config/option_value.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;

/// Values end up in lines of a job's script, where a blank or a quote would begin something else.
void check_word(const ConfigEntry& entry, const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,=@#[]";
  if (text.empty()) ClusterTable::refuse(entry, "is empty; leave it out, or give a value");
  const std::size_t wrong = text.find_first_not_of(plain);
  if (wrong != std::string::npos)
    ClusterTable::refuse(entry, "has the character '" + text.substr(wrong, 1) + "'; letters, digits and " +
                                    std::string(plain.substr(62)) + " are what a job's script holds as they are");
}

std::vector<std::string> list_of(const OptionSpec& spec, const ConfigEntry& entry) {
  std::vector<std::string> texts;
  for (const auto& value : entry.value.is_array() ? entry.value : nlohmann::json::array({entry.value})) {
    texts.push_back(option_text(spec, value, entry));
    if (texts.back().find_first_of("\n\r") != std::string::npos) ClusterTable::refuse(entry, "has a line break within a line");
  }
  return texts;
}

std::string file_of_user() {
  if (const char* const folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0')
    return (fs::path(folder) / "consist" / "cluster.toml").string();
  const char* const home = std::getenv("HOME");
  return home == nullptr ? "" : (fs::path(home) / ".config" / "consist" / "cluster.toml").string();
}

/// Empty if there is none.
std::string find_cluster_file(const CommandLine& line) {
  if (line.has("cluster")) return line.text("cluster");
  for (const std::string& path : {std::string("cluster.toml"), file_of_user()}) {
    if (std::error_code ignored; !path.empty() && fs::exists(path, ignored)) return path;
  }
  return "";
}

/// True for a key of another kind's table, which is that kind's business.
bool is_of_another_kind(const std::string& name) {
  return std::any_of(std::begin(cluster_kinds), std::end(cluster_kinds),
                     [&](const char* kind) { return name.starts_with(std::string(kind) + "."); });
}

}  // namespace

ClusterTable::ClusterTable(std::string kind, std::string example, ClusterSettings& settings)
    : kind_(std::move(kind)), example_(std::move(example)), settings_(settings) {
  text("folder", settings.folder);
  text("consist", settings.consist);
  texts("before", settings.before);
}

void ClusterTable::nodes(int& gpus_per_node) {
  settings_.ranks_per_node = 0;
  gpus_per_node_ = &gpus_per_node;
  number("nodes", "1", "1..65536", settings_.nodes);
  number("ranks-per-node", "1", "1..1024", settings_.ranks_per_node);
  number("gpus-per-node", "0", "0..1024", gpus_per_node);
  number("max-jobs", "0", "0..100000", settings_.max_jobs);
}

void ClusterTable::text(const char* name, std::string& to) {
  keys_.push_back({.spec = {name, OptionKind::text, "", ""}, .set = [&to](const ConfigEntry& entry, const std::string& value) {
                     check_word(entry, value);
                     to = value;
                   }});
}

void ClusterTable::number(const char* name, const char* fallback, const char* range, int& to) {
  keys_.push_back({.spec = {name, OptionKind::integer, fallback, "", range},
                   .set = [&to](const ConfigEntry&, const std::string& value) { parse_number(value, to); }});
}

void ClusterTable::flag(const char* name, bool& to) {
  keys_.push_back({.spec = {name, OptionKind::flag, "true", ""},
                   .set = [&to](const ConfigEntry&, const std::string& value) { to = value == "true"; }});
}

void ClusterTable::texts(const char* name, std::vector<std::string>& to, Check check) {
  list(OptionKind::text, name, to, std::move(check));
}

void ClusterTable::numbers(const char* name, std::vector<std::string>& to, Check check) {
  list(OptionKind::integer, name, to, std::move(check));
}

void ClusterTable::list(OptionKind kind, const char* name, std::vector<std::string>& to, Check check) {
  const OptionSpec spec{name, kind, "", ""};
  keys_.push_back(
      {.spec = spec, .is_list = true, .set = [spec, &to, check = std::move(check)](const ConfigEntry& entry, const std::string&) {
         to = list_of(spec, entry);
         if (check) check(entry, to);
       }});
}

void ClusterTable::refuse(const ConfigEntry& entry, const std::string& why) {
  throw UsageError(entry.said + " " + why);
}

void ClusterTable::refuse_key(const ConfigEntry& entry) const {
  std::vector<KnownName> known;
  for (const Key& key : keys_) known.push_back({kind_ + "." + key.spec.name});
  refuse(entry, "is no key of a cluster's file; [" + kind_ + "] and [" + kind_ + ".environment] are its tables for --on " +
                    kind_ + " (docs/clusters.md)." + did_you_mean(entry.name, known));
}

void ClusterTable::lacks(const std::string& key, const std::string& what) const {
  throw UsageError(settings_.file + " has no " + kind_ + "." + key + ": " + what + "." + example_);
}

void ClusterTable::take_variable(const ConfigEntry& entry, const std::string& name) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  if (name.empty() || name.find_first_not_of(letters) != std::string::npos || (name[0] >= '0' && name[0] <= '9'))
    refuse(entry, "is no name of an environment variable");
  if (name == "CONSIST_JOB_TOKEN" || name == "CONSIST_JOB_TOKEN_FILE")
    refuse(entry, "is made anew for each job, and others could read it here; leave it out");
  std::string text = entry.value.is_string() ? entry.value.get<std::string>() : entry.value.dump();
  if (text.find('\n') != std::string::npos) refuse(entry, "has a line break");
  settings_.environment.emplace_back(name, std::move(text));
}

void ClusterTable::take(const ConfigEntry& entry) {
  const std::string table = kind_ + ".", variables = table + "environment.";
  if (entry.name.starts_with(variables)) return take_variable(entry, entry.name.substr(variables.size()));
  if (!entry.name.starts_with(table)) {
    if (is_of_another_kind(entry.name)) return;
    refuse_key(entry);
  }
  const std::string name = entry.name.substr(table.size());
  const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return name == k.spec.name; });
  if (key == keys_.end()) refuse_key(entry);
  key->set(entry, key->is_list ? "" : legal_value(key->spec, option_text(key->spec, entry.value, entry), entry.said));
}

void ClusterTable::check_folder() const {
  if (settings_.folder.empty()) lacks("folder", "a folder that nodes have, for what belongs to a job");
  if (!fs::path(settings_.folder).is_absolute())
    throw UsageError(settings_.file + ": " + kind_ + ".folder is " + settings_.folder +
                     "; it must begin with /, as nodes have other working folders");
  settings_.folder = fs::path(settings_.folder).lexically_normal().string();
  while (settings_.folder.size() > 1 && settings_.folder.back() == '/') settings_.folder.pop_back();
}

void ClusterTable::read(const CommandLine& line) {
  settings_.file = find_cluster_file(line);
  if (settings_.file.empty()) {
    const std::string of_user = file_of_user();
    throw UsageError("--on " + kind_ + " needs the cluster's file, and there is neither ./cluster.toml nor " +
                     (of_user.empty() ? "one of yours (HOME is not set)" : of_user) + "; name one with --cluster FILE." +
                     example_);
  }
  for (const ConfigEntry& entry : read_config_file(settings_.file)) take(entry);
  check_folder();
  if (gpus_per_node_ != nullptr && settings_.ranks_per_node == 0) settings_.ranks_per_node = std::max(1, *gpus_per_node_);
}

std::string own_executable() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) throw SystemError("cannot tell where this executable is: " + error.message());
  return path.string();
}

}  // namespace consist::launch
