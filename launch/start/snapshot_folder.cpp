#include "launch/start/snapshot_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "consist/error.h"
#include "core/base/system_error.h"

namespace consist::launch {
namespace {

/// Removes the folder once nobody holds the other end of the pipe. It holds nothing of its parent's: whoever reads the parent's
/// outputs sees their end.
[[noreturn]] void keep(const std::string& folder, int pipe) {
  setpgid(0, 0);  // a terminal's signals are for the parent
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
  dup2(pipe, 0);
  if (close_range(1, ~0U, 0) != 0) {
    for (int fd = 1; fd < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++fd) close(fd);
  }
  char byte = 0;
  while (read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  // Ranks that the system is ending may still write.
  for (int tries = 0; tries < 50; ++tries) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (!error) break;
    usleep(100'000);
  }
  _exit(0);
}

}  // namespace

SnapshotFolder::SnapshotFolder() {
  std::string name = "/dev/shm/consist-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    throw SystemError("snapshots of a run go into shared memory, where no folder can be made (" + name + ": " +
                      system_error_text(errno) + "); give --snapshot-every 0, and a run goes on from its checkpoints alone");
  path_ = name;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    const int reason = errno;
    rmdir(path_.c_str());
    throw SystemError("cannot make a pipe: " + system_error_text(reason));
  }
  const network::Socket watched(ends[0]);
  alive_ = network::Socket(ends[1]);
  keeper_ = fork();
  if (keeper_ < 0) {
    const int reason = errno;
    rmdir(path_.c_str());
    throw SystemError("cannot start a process: " + system_error_text(reason));
  }
  if (keeper_ == 0) keep(path_, watched.fd());
}

SnapshotFolder::~SnapshotFolder() {
  alive_.close();
  while (waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void SnapshotFolder::clear() const {
  std::error_code ignored;
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator entry(path_, ignored), end; !ignored && entry != end; entry.increment(ignored))
    paths.push_back(entry->path());
  for (const std::filesystem::path& path : paths) std::filesystem::remove_all(path, ignored);
}

}  // namespace consist::launch
