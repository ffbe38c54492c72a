#include "core/plugin/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>

#include "consist/error.h"
#include "core/base/did_you_mean.h"
#include "core/config/option_value.h"
#include "core/plugin/built_in.h"
#include "core/plugin/manifest.h"
#include "core/plugin/plugin_faults.h"
#include "core/plugin/probe.h"
#include "core/plugin/signal_guard.h"

namespace consist {

namespace fs = std::filesystem;

struct PluginHost::Loaded {
  const PluginIdentity* identity = nullptr;
  boost::dll::shared_library library;
  void* (*create)(const Options&) = nullptr;
  void (*destroy)(void*) = nullptr;
  std::vector<OptionSpec> options;
};

namespace {

std::vector<std::string> split_path(const char* text) {
  std::vector<std::string> parts;
  std::string_view all = text == nullptr ? "" : text;
  while (!all.empty()) {
    const std::size_t end = std::min(all.find(':'), all.size());
    if (end > 0) parts.emplace_back(all.substr(0, end));
    all.remove_prefix(std::min(end + 1, all.size()));
  }
  return parts;
}

/// Says why the dynamic linker has refused a plugin, by its message, which Boost's carries.
std::string reason_of_linker(const std::string& message) {
  constexpr std::string_view missing = ": cannot open shared object file";
  const std::size_t end = message.find(missing);
  if (end == message.npos) return message + ". If a symbol is undefined, the plugin was linked without a library that it needs";
  const std::size_t begin = message.find_last_of(" /", end) + 1;
  return "it needs " + message.substr(begin, end - begin) +
         ", which is not on this machine or not where libraries are looked for; docs/troubleshooting.md says what brings it";
}

/// Loads a plugin file for good.
boost::dll::shared_library open_library(const fs::path& path) {
  boost::dll::shared_library library;
  try {
    library.load(boost::dll::fs::path(path.string()), boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& failure) {
    throw UnavailableError(path.string() + " cannot be loaded: " + reason_of_linker(failure.what()));
  }
  return library;
}

/// A warning of other users who can change `at`, a plugin's file or folder or one above it; empty if there are none.
std::string others_rights(const fs::path& at, const fs::path& plugin) {
  struct stat info {};
  if (::stat(at.c_str(), &info) != 0) return {};
  const bool above = at != plugin, keeps_entries = above && (info.st_mode & S_ISVTX) != 0;  // as /tmp does
  const std::string what =
      S_ISDIR(info.st_mode) ? "the folder " + at.string() + ", in which plugins lie," : "the plugin file " + at.string();
  if ((info.st_mode & S_IWOTH) != 0 && !keeps_entries)
    return what + " may be written by every user of this machine, who could have you run their code; `chmod o-w " + at.string() +
           "` ends that";
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return what + " belongs to another user (number " + std::to_string(info.st_uid) +
           "), whose code you run; take plugins from a folder of your own or of root";
  return {};
}

}  // namespace

fs::path executable_folder() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const bool helper = folder.filename() == "consist" && folder.parent_path().filename() == "libexec";
  return helper ? folder.parent_path().parent_path() / "bin" : folder;
}

PluginHost::PluginHost(const std::vector<std::string>& extra) {
  plugin_timeout();  // says what is wrong with it before any call needs it
  for (const std::string& place : extra) search(place, true);
  for (const std::string& place : split_path(std::getenv("CONSIST_PLUGIN_PATH"))) search(place, false);
  search(executable_folder().parent_path() / "lib" / "consist" / "plugins", false);
  std::stable_sort(files_.begin(), files_.end(),
                   [](const PluginFile& a, const PluginFile& b) { return std::tie(a.kind, a.name) < std::tie(b.kind, b.name); });
  refuse_duplicates();
}

void PluginHost::search(const fs::path& place, bool must_exist) {
  std::error_code error;
  const fs::file_status status = fs::status(place, error);
  if (!fs::exists(status)) {
    if (must_exist) throw UsageError("--plugin " + place.string() + ": there is no such file or folder");
    places_.push_back(place.string() + " (which is not there)");
    return;
  }
  places_.push_back(place.string());
  note_others_rights(place);
  if (!fs::is_directory(status)) {
    add_file(place, true);
    return;
  }
  std::vector<fs::path> found;
  fs::directory_iterator entry(place, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code broken_link;
    if (entry->is_regular_file(broken_link) && entry->path().extension() == ".so") found.push_back(entry->path());
  }
  if (error) throw SystemError("the plugin folder " + place.string() + " cannot be listed: " + error.message());
  std::sort(found.begin(), found.end());
  for (const fs::path& file : found) {
    note_others_rights(file);
    add_file(file, false);
  }
}

void PluginHost::note_others_rights(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return;
  // Whoever may write a folder above it may put another in its place.
  for (fs::path at = real;; at = at.parent_path()) {
    std::string warning = others_rights(at, real);
    if (!warning.empty() && std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end())
      warnings_.push_back(std::move(warning));
    if (at == at.parent_path()) return;
  }
}

void PluginHost::add_file(const fs::path& path, bool named) {
  const fs::path real = fs::canonical(path);
  if (std::any_of(files_.begin(), files_.end(), [&](const PluginFile& f) { return f.path == real; })) return;
  PluginFile file{.path = real};
  try {
    PluginManifest info = read_manifest(real);
    file.kind = info.kind;
    file.name = info.name;
    file.version = info.version;
    file.summary = info.summary;
    file.with_cuda = info.cuda_major != 0;
    file.fingerprint = info.fingerprint;
    file.problem = incompatibility(info);
    file.headers = std::move(info.headers);
  } catch (const DataError& error) {
    if (named) throw;
    file.problem = error.what();
  }
  files_.push_back(std::move(file));
}

void PluginHost::refuse_duplicates() const {
  const PluginFile* previous = nullptr;
  for (const PluginFile& file : files_) {
    if (!file.problem.empty()) continue;
    if (previous != nullptr && previous->kind == file.kind && previous->name == file.name) {
      throw UsageError("two plugins are called '" + file.name + "' (" + file.kind + "): " + previous->path.string() + " and " +
                       file.path.string() + "; remove one of them or change the search path");
    }
    previous = &file;
  }
}

std::vector<std::string> PluginHost::names(std::string_view kind) const {
  std::vector<std::string> names;
  for (const PluginFile& file : files_) {
    if (file.kind == kind && file.problem.empty()) names.push_back(file.name);
  }
  return names;
}

bool PluginHost::has(std::string_view kind, std::string_view name) const noexcept {
  return std::any_of(files_.begin(), files_.end(),
                     [&](const PluginFile& f) { return f.problem.empty() && f.kind == kind && f.name == name; });
}

std::string PluginHost::looked_in() const {
  std::string message = "Looked in:";
  for (const std::string& place : places_) message += " " + place;
  message += " (add places with --plugin or CONSIST_PLUGIN_PATH)";
  for (const PluginFile& file : files_) {
    if (file.name.empty()) message += "\n  not used: " + file.problem;
  }
  return message;
}

const PluginFile& PluginHost::find(std::string_view kind, std::string_view name) const {
  const PluginFile* unusable = nullptr;
  for (const PluginFile& file : files_) {
    if (file.kind != kind || file.name != name) continue;
    if (file.problem.empty()) return file;
    unusable = &file;
  }
  if (unusable != nullptr) {
    throw UsageError("the " + std::string(kind) + " '" + std::string(name) + "' in " + unusable->path.string() +
                     " cannot be used: " + unusable->problem);
  }
  std::string message = "there is no " + std::string(kind) + " '" + std::string(name) + "'. There ";
  std::vector<KnownName> described;
  for (const BuiltInPart& part : built_in_parts) {
    if (part.kind == kind) described.push_back({std::string(part.name), std::string(part.summary)});
  }
  for (const PluginFile& file : files_) {
    if (file.kind == kind && file.problem.empty()) described.push_back({file.name, file.summary});
  }
  message += described.empty() ? "is none at all" : "are:";
  for (const KnownName& other : described) message += " " + other.name;
  throw UsageError(message + "." + did_you_mean(name, described) + " " + looked_in());
}

namespace {

void check_tunable(const std::vector<OptionSpec>& options, const PluginFile& file) {
  for (const OptionSpec& spec : options) {
    try {
      tunable_values(spec, "--" + file.name + "." + spec.name);
    } catch (const UsageError& error) {
      throw UnavailableError(file.path.string() + ": " + error.what() + "; correct it in the plugin's CONSIST_PLUGIN_OPTIONS");
    }
  }
}

}  // namespace

PluginHost::Loaded& PluginHost::load(const PluginFile& file) {
  std::shared_ptr<Loaded>& slot = loaded_[file.path];
  if (slot) return *slot;
  auto loaded = std::make_shared<Loaded>();
  auto* const identity = new PluginIdentity{file.kind + " '" + file.name + "'", file.path.string()};  // for the process's life
  loaded->identity = identity;
  {
    const FloatModeGuard mode(*identity);
    const SignalGuard signals(*identity);
    loaded->library = in_plugin(*identity, "loading", PluginCall::Limit::plugin_timeout, [&] { return open_library(file.path); });
  }
  auto symbol = [&](const char* name) {
    if (!loaded->library.has(name)) {
      throw UnavailableError(file.path.string() + " has no function " + name +
                             "; CONSIST_PLUGIN and CONSIST_PLUGIN_OPTIONS make them");
    }
  };
  symbol("consist_plugin_create");
  symbol("consist_plugin_destroy");
  symbol("consist_plugin_options");
  loaded->create = loaded->library.get<void*(const Options&)>("consist_plugin_create");
  loaded->destroy = loaded->library.get<void(void*)>("consist_plugin_destroy");
  std::size_t count = 0;
  const auto options = loaded->library.get<const OptionSpec*(std::size_t*)>("consist_plugin_options");
  const OptionSpec* table = in_plugin(*identity, "consist_plugin_options", [&] { return options(&count); });
  loaded->options.assign(table, table + count);
  check_tunable(loaded->options, file);
  slot = std::move(loaded);
  return *slot;
}

std::vector<OptionSpec> PluginHost::option_table(std::string_view kind, std::string_view name) {
  return load(find(kind, name)).options;
}

PluginHost::Made PluginHost::make_object(std::string_view kind, std::string_view name,
                                         const std::map<std::string, std::string>& given) {
  const PluginFile& file = find(kind, name);
  Loaded& loaded = load(file);
  Options options(file.name);
  for (const OptionSpec& spec : loaded.options) {
    const auto value = given.find(spec.name);
    if (value == given.end()) {
      options.set_fallback(spec);
    } else {
      options.set(spec, value->second);
    }
  }
  for (const auto& [option, value] : given) {
    const bool known = std::any_of(loaded.options.begin(), loaded.options.end(),
                                   [&, &option = option](const OptionSpec& s) { return option == s.name; });
    if (known) continue;
    std::string message = "plugin '" + file.name + "' has no option '" + option + "'. It has";
    for (const OptionSpec& spec : loaded.options) message += " " + std::string(spec.name);
    throw UsageError(message + (loaded.options.empty() ? " none" : ""));
  }
  const FloatModeGuard mode(*loaded.identity);
  const SignalGuard signals(*loaded.identity);
  void* object =
      in_plugin(*loaded.identity, "the constructor", PluginCall::Limit::plugin_timeout, [&] { return loaded.create(options); });
  return {object, loaded.destroy, loaded.identity};
}

Availability PluginHost::probe(const PluginFile& file, std::chrono::milliseconds timeout) const {
  if (!file.problem.empty()) return {.reason = file.problem, .loads = false};
  return probe_in_child(file.path, timeout);
}

std::string PluginHost::unavailable(const PluginFile& file, std::chrono::milliseconds timeout) const {
  return probe(file, timeout).reason;
}

std::string probe_plugin(const fs::path& path) {
  boost::dll::shared_library library = open_library(path);
  if (!library.has("consist_plugin_unavailable")) return {};
  const char* reason = library.get<const char*()>("consist_plugin_unavailable")();
  return reason == nullptr ? "" : reason;
}

}  // namespace consist
