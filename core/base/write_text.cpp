#include "core/base/write_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/system_error.h"

namespace consist {

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void write_secret(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) throw SystemError("cannot make " + path + ": " + system_error_text(errno));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
  const int error = errno;
  close(file);
  if (written) return;
  unlink(path.c_str());
  throw SystemError("cannot write " + path + ": " + system_error_text(error));
}

}  // namespace consist
