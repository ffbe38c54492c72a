// The rule of outputs: see Output in consist/files.h.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/output_place.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

constexpr int reader_wait_ms = 10'000;
constexpr int reader_poll_ms = 50;

std::string said(const Output& output) {
  return output.option + " " + output.path;
}

/// A name of a descriptor that the process was started with. What it leads to was opened by somebody else, for this.
bool is_descriptor(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

/// Status of the file that the output's name leads to; nothing if there is none.
std::optional<struct stat> found_at(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) return found;
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw SystemError("cannot write " + path + ": " + system_error_text(errno));
}

void require_folder(const Output& output, const std::string& path) {
  const std::string folder = folder_of(path);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw UsageError(said(output) + ": there is no folder " + folder + " to write it to; make it first");
  const AtomicFile trial(path);  // removed again: tells now whether it can be written
}

[[noreturn]] void refuse_kind(const Output& output, const struct stat& found) {
  const char* kind = S_ISDIR(found.st_mode)   ? "a folder; name a file in it"
                     : S_ISBLK(found.st_mode) ? "a block device, which is not written to; name a file"
                                              : "a socket; name a file";
  throw UsageError(said(output) + link_text(output.path) + " is " + kind);
}

/// Opens what is written to and stays. A pipe has a reader soon, or never.
int open_stream(const Output& output) {
  for (int waited = 0;; waited += reader_poll_ms) {
    const int fd = ::open(output.path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0) {
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return fd;
    }
    if (errno != ENXIO) throw SystemError("cannot write " + said(output) + ": " + system_error_text(errno));
    if (waited >= reader_wait_ms)
      throw SystemError("cannot write " + said(output) + ": nobody has read this pipe for " +
                        std::to_string(reader_wait_ms / 1000) + " seconds; start its reader first");
    ::poll(nullptr, 0, reader_poll_ms);
  }
}

void write_all(int fd, const Output& output, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw SystemError("cannot write " + said(output) + ": " + system_error_text(errno));
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

/// True if the file at the output's name, which is a regular one, may be replaced.
bool may_replace(const Output& output) {
  if (output.overwrite) return true;
  if (output.mark.empty()) return false;
  const InputFile file(output.path);
  if (file.size() < static_cast<std::int64_t>(output.mark.size())) return false;
  std::string begin(output.mark.size(), '\0');
  file.read(0, begin.data(), begin.size());
  return begin == output.mark;
}

}  // namespace

bool check_output(const Output& output) {
  if (output.path.empty()) throw UsageError(output.option + " is empty; it names the file to write");
  const std::optional<struct stat> found = found_at(output.path);
  if (found && (S_ISCHR(found->st_mode) || S_ISFIFO(found->st_mode) || is_descriptor(output.path))) {
    if (::access(output.path.c_str(), W_OK) == 0) return true;
    throw SystemError("cannot write " + said(output) + ": " + system_error_text(errno));
  }
  if (found && !S_ISREG(found->st_mode)) refuse_kind(output, *found);
  struct stat named {};
  const bool replaces = found && may_replace(output), is_free = !found && ::lstat(output.path.c_str(), &named) != 0;
  if (!replaces && !is_free && !output.overwrite)
    throw UsageError(said(output) + link_text(output.path) +
                     " exists already; name another file, or replace it with --overwrite");
  require_folder(output, behind_links(output.path));
  return false;
}

void write_output(const Output& output, std::string_view text) {
  if (!check_output(output)) {
    AtomicFile file(behind_links(output.path), output.overwrite || !output.mark.empty());
    file.write(text.data(), text.size());
    file.commit();
    return;
  }
  const int fd = open_stream(output);
  try {
    write_all(fd, output, text);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

int open_output(const Output& output) {
  if (check_output(output)) return open_stream(output);
  const std::string path = behind_links(output.path);
  AtomicFile(path, output.overwrite || !output.mark.empty()).commit();  // empty, in place of what was there
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) throw SystemError("cannot write " + said(output) + ": " + system_error_text(errno));
  return fd;
}

}  // namespace consist
