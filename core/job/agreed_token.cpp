#include "core/job/agreed_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/handshake.h"
#include "core/base/sha256.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t token_bytes = 32;

SystemError unusable(const fs::path& place, const std::string& why) {
  return SystemError("the job's ranks cannot agree on a token by " + place.string() + ": " + why +
                     ". Set CONSIST_JOB_TOKEN=$(openssl rand -hex 16) before the launcher");
}

/// Makes sure that the folder is there and the user's alone.
void claim(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw unusable(folder, std::strerror(errno));
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) throw unusable(folder, std::strerror(errno));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077U) != 0)
    throw unusable(folder, "it must be a folder of this user that nobody else may open");
}

/// Writes a new token to a file of this process's own, and gives it the name unless another rank has been first.
void offer(const fs::path& file) {
  const fs::path own = file.string() + "." + network::random_hex(8);
  const int handle = open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (handle < 0) throw unusable(own, std::strerror(errno));
  const std::string token = network::random_hex(token_bytes);
  const bool written = write(handle, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  const int problem = errno;
  close(handle);
  const bool named = written && (link(own.c_str(), file.c_str()) == 0 || errno == EEXIST);
  const int link_problem = errno;
  unlink(own.c_str());
  if (!named) throw unusable(file, std::strerror(written ? link_problem : problem));
}

}  // namespace

fs::path HostToken::default_parent() {
  std::error_code error;
  return fs::is_directory("/dev/shm", error) ? "/dev/shm" : "/tmp";
}

HostToken::HostToken(const std::string& start, const fs::path& parent) {
  const fs::path folder = parent / ("consist-" + std::to_string(geteuid()));
  claim(folder);
  file_ = folder / ("token-" + sha256_of(start));
  constexpr std::int64_t most_bytes = 4096;
  // Another job of the same name may take the file away in between.
  for (int attempt = 0; token_.empty(); ++attempt) {
    offer(file_);
    try {
      token_ = read_text(file_.string(), most_bytes);
    } catch (const Error&) {
      if (attempt == 3) throw;
    }
  }
}

void HostToken::remove() noexcept {
  unlink(file_.c_str());
}

}  // namespace consist
