#include "core/job/agreed_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/handshake.h"
#include "core/base/sha256.h"
#include "core/base/system_error.h"
#include "core/base/write_text.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

SystemError unusable(const fs::path& place, const std::string& why) {
  return SystemError("the job's ranks cannot agree on a token by " + place.string() + ": " + why +
                     ". Set CONSIST_JOB_TOKEN=$(openssl rand -hex 16) before the launcher");
}

/// Makes sure that the folder is there and the user's alone.
void claim(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw unusable(folder, system_error_text(errno));
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) throw unusable(folder, system_error_text(errno));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077U) != 0)
    throw unusable(folder, "it must be a folder of this user that nobody else may open");
}

/// Writes a new token to a file of this process's own, and gives it the name unless another rank has been first.
void offer(const fs::path& file) {
  const fs::path own = file.string() + "." + network::random_hex(8);
  try {
    write_secret(own, new_token());
  } catch (const SystemError& error) {
    throw unusable(file, error.what());
  }
  const bool named = link(own.c_str(), file.c_str()) == 0 || errno == EEXIST;
  const int problem = errno;
  unlink(own.c_str());
  if (!named) throw unusable(file, system_error_text(problem));
}

}  // namespace

std::string new_token() {
  constexpr std::size_t bytes = 32;
  return network::random_hex(bytes);
}

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
