#include "core/base/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "consist/error.h"
#include "core/base/started_program.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

using ChildDeadline = std::chrono::steady_clock::time_point;

/// Reads until end of file or the deadline; false on the latter.
bool read_all_of_child(int fd, ChildDeadline deadline, std::string& text) {
  for (char buffer[512];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
    constexpr std::size_t enough = 1 << 16;  // callers look for the end
    if (text.size() > 2 * enough) text.erase(0, text.size() - enough);
  }
}

}  // namespace

ChildOutput child_output(std::vector<std::string> words, std::chrono::milliseconds longest) {
  const ChildDeadline deadline = std::chrono::steady_clock::now() + longest;
  const std::string name = words[0];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t child = start_program(std::move(words), {nowhere, ends[1], nowhere});
  if (nowhere >= 0) close(nowhere);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    throw SystemError("cannot start " + name + ": " + system_error_text(-child));
  }
  ChildOutput output;
  output.in_time = read_all_of_child(ends[0], deadline, output.text);
  close(ends[0]);
  // One that closed its output may still hang.
  output.in_time = wait_for_program(child, output.in_time ? deadline : ChildDeadline{}, output.status) && output.in_time;
  return output;
}

}  // namespace consist
