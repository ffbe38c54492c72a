#include "plugins/transports/rdma/requirements.h"

#include <sys/resource.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "consist/host.h"

namespace consist::rdma {
namespace {

namespace fs = std::filesystem;

/// Buffers that NICs read and write are pinned: libfabric's own pools take tens of MiB per endpoint, NCCL's take more.
constexpr rlim_t enough_memlock = rlim_t{1} << 30U;

}  // namespace

std::string verbs_problem(const std::string& remedy, const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("uverbs")) continue;
    if (std::ifstream(entry->path())) return {};
  }
  return "no " + (folder / "uverbs*").string() + " can be opened; a container must be given them (" + remedy + ")";
}

std::string memlock_problem() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= enough_memlock) return {};
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  if (has_ipc_lock(status.str())) return {};
  return "a process may pin " + std::to_string(limit.rlim_cur >> 10U) +
         " KiB, too little for the buffers of the NICs; set 'ulimit -l unlimited' (limits.conf: memlock), or give the capability "
         "IPC_LOCK";
}

void Missing::add(const std::string& what, const std::string& problem) {
  if (!problem.empty()) lines_.push_back(what + ": " + problem);
}

std::string Missing::text(const std::string& head) const {
  if (lines_.empty()) return {};
  std::string text = head;
  for (const std::string& line : lines_) text += "\n    - " + line;
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace consist::rdma
