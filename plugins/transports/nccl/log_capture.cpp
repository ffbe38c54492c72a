#include "plugins/transports/nccl/log_capture.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "consist/error.h"
#include "consist/log.h"

namespace consist::nccl {

LogCapture& LogCapture::instance() {
  static LogCapture capture;
  return capture;
}

LogCapture::LogCapture() {
  file_ = memfd_create("nccl-log", MFD_CLOEXEC);
  if (file_ < 0) throw SystemError(std::string("cannot make a file in memory for NCCL's log: ") + std::strerror(errno));
  const char* const level = std::getenv("NCCL_DEBUG");
  wants_lines_ = level != nullptr && *level != '\0';
  if (const char* const own = std::getenv("NCCL_DEBUG_FILE"); own != nullptr) {
    log::warn(std::string("NCCL_DEBUG_FILE=") + own + " is not written: Consist reads NCCL's log and passes it on to its own");
  }
  setenv("NCCL_DEBUG", "INFO", 1);
  // Subsystems that the user wants to see besides are added, not replaced.
  std::string subsystems = "INIT,GRAPH,ENV,NET,P2P,SHM,NVLS,BOOTSTRAP";
  if (const char* const own = std::getenv("NCCL_DEBUG_SUBSYS"); own != nullptr && *own != '\0' && *own != '^')
    subsystems += std::string(",") + own;
  setenv("NCCL_DEBUG_SUBSYS", subsystems.c_str(), 1);
  setenv("NCCL_DEBUG_FILE", ("/proc/self/fd/" + std::to_string(file_)).c_str(), 1);
}

std::size_t LogCapture::size() const noexcept {
  struct stat status {};
  return fstat(file_, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
}

std::string LogCapture::text(std::size_t begin) const {
  const std::size_t end = size();
  std::string text(end > begin ? end - begin : 0, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = pread(file_, text.data() + done, text.size() - done, static_cast<off_t>(begin + done));
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace consist::nccl
