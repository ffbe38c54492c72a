#include "core/base/system_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace consist {

std::string system_error_text(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EMFILE) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      text += ": this process may have " + std::to_string(limit.rlim_cur) +
              " files and connections open at once. Raise the limit (`ulimit -n " + std::to_string(4 * limit.rlim_cur) +
              "`, LimitNOFILE of a service, --ulimit nofile of a container)";
    }
  } else if (error == ENFILE) {
    text += ": the limit is the whole machine's (fs.file-max); end other programs, or have an administrator raise it";
  }
  return text;
}

}  // namespace consist
