// Requirements of network devices that read and write memory by themselves, looked for without starting anything.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace consist::rdma {

/// Error text if no /dev/infiniband/uverbs* can be opened; empty if one can. `remedy`: how a container is given them.
std::string verbs_problem(const std::string& remedy, const std::filesystem::path& folder = "/dev/infiniband");

/// Error text if the limit of memory that a process may pin (RLIMIT_MEMLOCK) is too low for the buffers of such devices; empty if
/// it is not.
std::string memlock_problem();

/// Things that are missing, a line for each.
class Missing {
 public:
  /// Adds "what: problem"; nothing if there is none.
  void add(const std::string& what, const std::string& problem);
  /// The lines below a head; empty without any.
  std::string text(const std::string& head) const;

 private:
  std::vector<std::string> lines_;
};

/// "mlx5_0, mlx5_1".
std::string joined(const std::vector<std::string>& words);

}  // namespace consist::rdma
