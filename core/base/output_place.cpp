#include "core/base/output_place.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace consist {

std::string behind_links(const std::string& path) {
  constexpr int most_links = 40;  // as many as Linux follows
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(at, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return at.string();
}

std::string link_text(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error ? "" : " (a link to " + target.string() + ")";
}

int rename_to_free(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot do that at once, such as NFS.
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

}  // namespace consist
