#include "launch/start/process_setup.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace consist::launch {

void open_standard_descriptors() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() gives the lowest number that is free, which is this one: those below it are open by now.
    constexpr int nowhere_to_say_it = 125;
    if (open("/dev/null", O_RDWR) != fd) _exit(nowhere_to_say_it);
  }
}

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // where that is refused the lower limit stays, and reaching it is an error that says so
}

}  // namespace consist::launch
