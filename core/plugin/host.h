// Finds plugins, loads the chosen ones and makes their objects.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "consist/options.h"
#include "consist/plugin.h"
#include "core/plugin/guarded.h"
#include "core/plugin/header_marks.h"

namespace consist {

/// A plugin file that was found. `problem` says why it cannot be used; empty if it can (as far as its bytes tell).
struct PluginFile {
  std::filesystem::path path;
  std::string kind, name, version, summary;
  std::string problem;
  std::string fingerprint;          ///< what it was built for: all public headers, and the compiler
  std::vector<HeaderMark> headers;  ///< that it includes, if it names them
  bool with_cuda = false;  ///< it was built with a CUDA toolkit, whose libraries it loads
};

/// States if a plugin can be loaded and if its part can work on this machine.
struct Availability {
  std::string reason;  ///< why the part cannot work; empty if it can
  bool loads = true;   ///< false: the file cannot be loaded at all, so that its options are unknown too
};

/// Not thread-safe. Objects made by it may outlive it: plugins are never unloaded.
class CONSIST_API PluginHost {
 public:
  /// Looks in `extra` (files or folders, as --plugin gives them), then in CONSIST_PLUGIN_PATH (separated by ':'), then beside the
  /// executable
  /// (<folder of the executable>/../lib/consist/plugins). Only the files' bytes are read. Throws UsageError for an `extra` path
  /// that does not exist and for a CONSIST_PLUGIN_TIMEOUT that is no number of seconds, DataError for an `extra` file that is no
  /// plugin, SystemError for a folder that may not be read; other files that are no plugins are listed with their problem.
  explicit PluginHost(const std::vector<std::string>& extra);

  /// Every file found, by kind and name. Two usable files of one kind and name are a UsageError that names both.
  const std::vector<PluginFile>& files() const noexcept { return files_; }
  /// Names of one kind, usable ones.
  std::vector<std::string> names(std::string_view kind) const;
  bool has(std::string_view kind, std::string_view name) const noexcept;
  /// Throws UsageError listing what there is and where it was looked for; or the file's problem.
  const PluginFile& find(std::string_view kind, std::string_view name) const;

  /// For messages: the places that were searched, in order, and the files there that could not be read as plugins.
  std::string looked_in() const;

  /// A sentence for each place and file that somebody else than this user and root may change, and so could have this user run code.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// The option table; loads the plugin. Valid for the life of the process.
  std::vector<OptionSpec> option_table(std::string_view kind, std::string_view name);

  /// Makes the plugin's object of the interface that belongs to `kind`, guarded (see guarded.h). `given` holds options by name;
  /// the others take their defaults. Throws UsageError for unknown options and bad values, UnavailableError where the file cannot
  /// be loaded (undefined symbols), and what the plugin's constructor throws, with its name.
  template <typename Interface>
  std::shared_ptr<Interface> make(std::string_view kind, std::string_view name, const std::map<std::string, std::string>& given) {
    Made made = make_object(kind, name, given);
    return guarded(std::shared_ptr<Interface>(static_cast<Interface*>(made.object),
                                              [destroy = made.destroy, plugin = made.plugin](Interface* object) {
                                                const PluginCall call(*plugin, "the destructor");
                                                destroy(object);
                                              }),
                   *made.plugin);
  }

  /// Loads the plugin in a process of its own, for `timeout` at most, and asks it: one that crashes or hangs does no harm here.
  Availability probe(const PluginFile& file, std::chrono::milliseconds timeout) const;
  /// The reason alone: why the part cannot work on this machine; empty if it can.
  std::string unavailable(const PluginFile& file, std::chrono::milliseconds timeout) const;

 private:
  struct Loaded;
  struct Made {
    void* object;
    void (*destroy)(void*);
    const PluginIdentity* plugin;
  };
  void search(const std::filesystem::path& place, bool must_exist);
  void add_file(const std::filesystem::path& path, bool named);
  void refuse_duplicates() const;
  void note_others_rights(const std::filesystem::path& path);
  Loaded& load(const PluginFile& file);
  Made make_object(std::string_view kind, std::string_view name, const std::map<std::string, std::string>& given);

  std::vector<PluginFile> files_;
  std::vector<std::string> places_;
  std::vector<std::string> warnings_;
  std::map<std::filesystem::path, std::shared_ptr<Loaded>> loaded_;
};

/// Performs `consist probe-plugin FILE`: loads the file and returns the reason why its part is unavailable (empty: it can work).
/// Throws UnavailableError if the file cannot be loaded.
CONSIST_API std::string probe_plugin(const std::filesystem::path& file);

/// Folder of the running executable; bin/ beside libexec/ for a program that is installed in libexec/consist.
CONSIST_API std::filesystem::path executable_folder();

}  // namespace consist
