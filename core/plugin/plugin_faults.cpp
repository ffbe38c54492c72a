#include "core/plugin/plugin_faults.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>

#include "consist/log.h"

namespace consist {
namespace {

constexpr int exit_status = 1;

std::atomic<bool> in_command{false};
std::atomic<bool> ending{false};
std::atomic<pid_t> last_words_by{0};  ///< the thread that says why the process ends, and closes the archive
struct sigaction crash_action {};

// --- Crashes. Async-signal-safe but for dladdr(), which a process that crashes may ask.

void say(const char* text) noexcept {
  for (std::size_t left = std::strlen(text); left > 0;) {
    const ssize_t wrote = ::write(STDERR_FILENO, text, left);
    if (wrote <= 0) return;
    text += wrote;
    left -= static_cast<std::size_t>(wrote);
  }
}

const char* name_of_signal(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "crashed: it touched memory that is not there (SIGSEGV)";
    case SIGBUS:
      return "crashed: it touched memory that cannot be had (SIGBUS)";
    case SIGFPE:
      return "crashed: it divided by zero (SIGFPE)";
    case SIGILL:
      return "crashed: an instruction that this processor does not have (SIGILL)";
    default:
      return "aborted (SIGABRT)";
  }
}

/// The program or library that the instruction of a signal's context lies in; null if that is not known.
const char* file_of(const void* context) noexcept {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  const std::uintptr_t instruction = machine.pc;
#endif
  Dl_info found{};
  return dladdr(reinterpret_cast<const void*>(instruction), &found) == 0 ? nullptr : found.dli_fname;
}

/// Names the call that the thread is in; in a thread without one, such as a device's, the file whose code it was.
void on_crash(int signal, siginfo_t* info, void* context) {
  // Within exit() libraries may have freed what other threads still compute with. Those wait here for the end.
  if (const pid_t by = last_words_by; by != 0 && by != gettid()) {
    sigaction(signal, &crash_action, nullptr);
    for (;;) pause();
  }
  if (!ending.exchange(true)) {
    const PluginCall* call = PluginCall::current();
    const char* const file = call != nullptr ? call->plugin().file.c_str() : file_of(context);
    say("consist: ");
    say(call != nullptr ? call->plugin().label.c_str() : "code of the process");
    if (file != nullptr) {
      say(" (");
      say(file);
      say(")");
    }
    say(" ");
    say(name_of_signal(signal));
    if (call != nullptr) {
      say(", in ");
      say(call->function());
      say("()");
    }
    say("\n");
  }
  // The default action is in place again (SA_RESETHAND): a fault comes again on return, a signal that was sent does not.
  if (info->si_code <= 0 && signal != SIGABRT) raise(signal);
}

// --- Ends that are not crashes.

std::mutex action_mutex;
std::function<void(const std::string&)> action;

void act(const std::string& message) {
  std::function<void(const std::string&)> then;
  {
    const std::lock_guard lock(action_mutex);
    then = action;
  }
  if (!then) return;
  try {
    then(message);
  } catch (...) {
    // A message that could not be told or a file that could not be closed stays so; the process ends for another reason.
  }
}

[[noreturn]] void end_by(const std::string& message) {
  last_words_by = gettid();
  say(("consist: " + message + "\n").c_str());
  act(message);
  std::fflush(nullptr);
  _exit(exit_status);
}

/// Runs within exit(): by a plugin, unless the command has finished.
void on_exit() {
  const PluginCall* call = PluginCall::current();
  if ((call == nullptr && !in_command) || ending.exchange(true)) return;
  if (call == nullptr)
    end_by("the process was ended by exit() in the midst of the command, from a thread of a plugin or of a library");
  end_by(call->plugin().label + " (" + call->plugin().file + ") ended the process by exit() in " + call->function() +
         "(); plugins report failures by throwing what consist/error.h declares");
}

bool has_subnormals() noexcept {
  volatile float smallest = std::numeric_limits<float>::min();
  return smallest / 2 != 0;
}

}  // namespace

void report_plugin_faults() {
  in_command = true;
  std::atexit(on_exit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which report crashes themselves
  static std::array<char, 1 << 16> stack;                            // for the overflow of the main thread's own
  stack_t alternate{};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  crash_action.sa_sigaction = on_crash;
  crash_action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  sigemptyset(&crash_action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &crash_action, nullptr);
#endif
}

void command_finished() noexcept {
  in_command = false;
}

void on_plugin_fault(std::function<void(const std::string&)> then) {
  // Handlers of exit() run in the opposite order: this one before those of libraries that the run has begun to use, which would
  // close the archive without its last words.
  if (then) std::atexit(on_exit);
  const std::lock_guard lock(action_mutex);
  action = std::move(then);
}

void libraries_are_in_use() {
  std::atexit(on_exit);
}

void end_after_hang(const PluginIdentity& plugin, const char* function, std::chrono::nanoseconds taken, bool stopping) {
  while (ending.exchange(true)) pause();  // the process is about to end
  end_by(plugin.label + " (" + plugin.file + ") has not returned from " + function + "() for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(taken).count()) + " s" +
         (stopping ? ", and a signal asked the run to end; what is newer than the last checkpoint is lost"
                   : "; if it is not stuck, set CONSIST_PLUGIN_TIMEOUT to more seconds"));
}

FloatModeGuard::FloatModeGuard(const PluginIdentity& plugin) noexcept : plugin_(plugin) {
  std::fegetenv(&before_);
}

FloatModeGuard::~FloatModeGuard() {
  if (has_subnormals()) return;
  std::fesetenv(&before_);
  if (!has_subnormals()) return;  // they were off before
  log::warn(plugin_.label + " (" + plugin_.file +
            ") switched subnormal numbers off for the whole process, as code linked with -Ofast or -ffast-math does; that was "
            "undone. Link it without");
}

}  // namespace consist
