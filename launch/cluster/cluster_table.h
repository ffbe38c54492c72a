// The cluster's file, cluster.toml: a table for each kind of cluster, with the keys of that kind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "consist/options.h"
#include "core/config/config_file.h"
#include "launch/cli/command_line.h"
#include "launch/cluster/settings.h"

namespace consist::launch {

/// The kinds of clusters, which are the names of tables and values of --on.
inline constexpr const char* cluster_kinds[] = {"slurm", "ssh", "kubernetes", "mpi"};

/// The keys that a table may have, and where their values go. What it was given outlives it.
class ClusterTable {
 public:
  using Check = std::function<void(const ConfigEntry& entry, const std::vector<std::string>& values)>;

  /// With the keys of all kinds but for nodes and ranks: folder, consist, before, environment. `example` is a small table.
  ClusterTable(std::string kind, std::string example, ClusterSettings& settings);

  /// The keys of clusters that give nodes: nodes, ranks-per-node (one for each GPU unless it is said, and one without),
  /// gpus-per-node and max-jobs.
  void nodes(int& gpus_per_node);
  void text(const char* name, std::string& to);
  void number(const char* name, const char* fallback, const char* range, int& to);
  void flag(const char* name, bool& to);
  /// A text or a list of them, none with a line break; `check` may refuse() it.
  void texts(const char* name, std::vector<std::string>& to, Check check = {});
  /// The same of whole numbers.
  void numbers(const char* name, std::vector<std::string>& to, Check check = {});

  /// Reads the file of --cluster, else ./cluster.toml, else ~/.config/consist/cluster.toml, and checks the folder. Throws
  /// UsageError where there is no file or folder, for a key or a value that the table may not have, and as read_config_file().
  void read(const CommandLine& line);
  /// Throws UsageError for a key without which there can be no job.
  [[noreturn]] void lacks(const std::string& key, const std::string& what) const;
  [[noreturn]] static void refuse(const ConfigEntry& entry, const std::string& why);

 private:
  struct Key {
    OptionSpec spec;
    bool is_list = false;
    std::function<void(const ConfigEntry& entry, const std::string& value)> set = {};
  };
  void list(OptionKind kind, const char* name, std::vector<std::string>& to, Check check);
  void take(const ConfigEntry& entry);
  void take_variable(const ConfigEntry& entry, const std::string& name);
  void check_folder() const;
  [[noreturn]] void refuse_key(const ConfigEntry& entry) const;

  const std::string kind_, example_;
  ClusterSettings& settings_;
  std::vector<Key> keys_;
  const int* gpus_per_node_ = nullptr;  // of nodes()
};

/// The path of this executable.
std::string own_executable();

}  // namespace consist::launch
