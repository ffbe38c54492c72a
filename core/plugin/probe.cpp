#include "core/plugin/probe.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include <cstring>

#include "consist/error.h"
#include "core/base/child_output.h"

namespace consist {
namespace {

Availability read_answer(std::string text, int status) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (const std::string_view mark : {probe_works, probe_refused}) {
    if (const std::size_t at = text.rfind(mark); at != std::string::npos && WIFEXITED(status)) {
      return {.reason = text.substr(at + mark.size()), .loads = mark == probe_works};
    }
  }
  if (WIFSIGNALED(status))
    return {.reason = std::string("it crashed while it was probed (") + strsignal(WTERMSIG(status)) + ")", .loads = false};
  return {.reason = "it ended the process that probed it, with status " + std::to_string(WEXITSTATUS(status)), .loads = false};
}

/// The program `consist` that belongs to this library: <its folder>/../bin/consist. Not whatever program has loaded the library,
/// which need not know the subcommand (and might start itself over and over).
std::string prober() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&probe_in_child), &library) == 0 || library.dli_fname == nullptr)
    throw SystemError("the place of the library consist is unknown");
  const std::filesystem::path program =
      std::filesystem::absolute(library.dli_fname).parent_path().parent_path() / "bin" / "consist";
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) throw SystemError(program.string() + " is not there; plugins are probed by it");
  return program.string();
}

}  // namespace

Availability probe_in_child(const std::filesystem::path& file, std::chrono::milliseconds timeout) {
  const ChildOutput answer = child_output({prober(), "probe-plugin", file.string()}, timeout);
  if (!answer.in_time) return {.reason = "it did not answer within " + std::to_string(timeout.count()) + " ms", .loads = false};
  return read_answer(answer.text, answer.status);
}

}  // namespace consist
