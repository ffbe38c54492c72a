#include "core/plugin/plugin_faults.h"

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "consist/log.h"

extern char** environ;

namespace consist {
namespace {

constexpr int exit_status = 1;
constexpr const char* broken_plugins = "CONSIST_BROKEN_PLUGINS";

// --- What handlers read: plain memory, filled in before.

struct CodeRange {
  std::uintptr_t begin, end;
  const PluginIdentity* plugin;
};
constexpr std::size_t most_ranges = 512;
std::array<CodeRange, most_ranges> ranges;
std::atomic<std::size_t> range_count{0};

/// Arguments and environment of a new start without the file that is looked at now; null: no new start.
struct Restart {
  std::vector<std::string> texts;
  std::vector<char*> environment;
};
std::atomic<Restart*> restart{nullptr};
char** program_arguments = nullptr;
std::atomic<bool> restart_forbidden{false};

std::atomic<bool> in_command{false};
std::atomic<bool> ending{false};

const PluginIdentity* plugin_at(std::uintptr_t address) noexcept {
  const std::size_t count = range_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (address >= ranges[i].begin && address < ranges[i].end) return ranges[i].plugin;
  }
  return nullptr;
}

// --- Async-signal-safe pieces.

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

/// Starts the program anew without the plugin that is looked at. Returns if that cannot be.
void start_anew() noexcept {
  const Restart* how = restart.load(std::memory_order_acquire);
  if (how == nullptr || program_arguments == nullptr || restart_forbidden) return;
  say("consist: going on without it\n");
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve("/proc/self/exe", program_arguments, how->environment.data());
}

struct Registers {
  std::uintptr_t instruction = 0, stack = 0;
};
Registers registers_of(const void* context) noexcept {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<std::uintptr_t>(machine.gregs[REG_RIP]), static_cast<std::uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
  return {machine.pc, machine.sp};
#else
  return {};
#endif
}

/// The plugin whose code lies nearest on the stack: where no call is marked (a thread of the plugin's own), and the crash was in
/// a library that it called.
const PluginIdentity* plugin_on_stack(std::uintptr_t stack) noexcept {
  constexpr std::size_t words = 512, blocks = 8;
  std::uintptr_t block[words];
  for (std::size_t b = 0; b < blocks; ++b) {
    // Read by the kernel, which does not crash at the stack's end.
    iovec to{block, sizeof block}, from{reinterpret_cast<void*>(stack + b * sizeof block), sizeof block};
    const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof(std::uintptr_t); ++i) {
      if (const PluginIdentity* plugin = plugin_at(block[i])) return plugin;
    }
    if (got < static_cast<ssize_t>(sizeof block)) break;
  }
  return nullptr;
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const Registers at = registers_of(context);
  const PluginCall* call = PluginCall::current();
  const PluginIdentity* plugin = plugin_at(at.instruction);
  if (plugin == nullptr && call != nullptr) plugin = &call->plugin();
  if (plugin == nullptr) plugin = plugin_on_stack(at.stack);
  if (!ending.exchange(true)) {
    say("consist: ");
    say(plugin == nullptr ? "the program" : plugin->label.c_str());
    if (plugin != nullptr) {
      say(" (");
      say(plugin->file.c_str());
      say(")");
    }
    say(" ");
    say(name_of_signal(signal));
    if (call != nullptr && plugin == &call->plugin()) {
      say(", in ");
      say(call->function());
      say("()");
    }
    say("\n");
    start_anew();
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
  say(("consist: " + message + "\n").c_str());
  start_anew();
  act(message);
  std::fflush(nullptr);
  _exit(exit_status);
}

/// Runs within exit(): by a plugin, unless the command has finished.
void on_exit() {
  const PluginCall* call = PluginCall::current();
  if ((call == nullptr && !in_command) || ending.exchange(true)) return;
  if (call != nullptr) {
    end_by(call->plugin().label + " (" + call->plugin().file + ") ended the process by exit() in " + call->function() +
           "(); plugins report failures by throwing what consist/error.h declares");
  }
  std::set<std::string> loaded;
  for (std::size_t i = 0; i < range_count; ++i) loaded.insert(ranges[i].plugin->label);
  std::string message = "the process was ended by exit() in the midst of the command, from a thread of a plugin. Loaded are:";
  for (const std::string& label : loaded) message += " " + label;
  end_by(message);
}

#if defined(__x86_64__)
constexpr std::uint64_t subnormals = 0x8040;  // MXCSR: results flushed, operands taken as zero
std::uint64_t float_mode() noexcept {
  return __builtin_ia32_stmxcsr();
}
void set_float_mode(std::uint64_t mode) noexcept {
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(mode));
}
#elif defined(__aarch64__)
constexpr std::uint64_t subnormals = std::uint64_t{1} << 24;  // FPCR.FZ
std::uint64_t float_mode() noexcept {
  std::uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void set_float_mode(std::uint64_t mode) noexcept {
  asm volatile("msr fpcr, %0" : : "r"(mode));
}
#endif

}  // namespace

void report_plugin_faults(char** arguments) {
  program_arguments = arguments;
  in_command = true;
  std::atexit(on_exit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which report crashes themselves
  static std::array<char, 1 << 16> stack;                            // for the overflow of the main thread's own
  stack_t alternate{};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  struct sigaction how {};
  how.sa_sigaction = on_crash;
  how.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  sigemptyset(&how.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &how, nullptr);
#endif
}

void command_finished() noexcept {
  in_command = false;
}

void add_plugin_code(const PluginIdentity& plugin) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t /*size*/, void* data) {
        const auto& identity = *static_cast<const PluginIdentity*>(data);
        if (object->dlpi_name == nullptr || identity.file != object->dlpi_name) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          const std::size_t count = range_count.load(std::memory_order_relaxed);
          if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || count == most_ranges) continue;
          ranges[count] = {object->dlpi_addr + segment.p_vaddr, object->dlpi_addr + segment.p_vaddr + segment.p_memsz, &identity};
          range_count.store(count + 1, std::memory_order_release);
        }
        return 1;
      },
      const_cast<PluginIdentity*>(&plugin));
}

PluginTrial::PluginTrial(const std::string& file) {
  auto how = std::make_unique<Restart>();
  std::string broken = file;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(broken_plugins) && text.substr(std::strlen(broken_plugins)).starts_with('=')) {
      broken += ":" + std::string(text.substr(std::strlen(broken_plugins) + 1));
    } else {
      how->texts.emplace_back(text);
    }
  }
  how->texts.push_back(std::string(broken_plugins) + "=" + broken);
  for (std::string& text : how->texts) how->environment.push_back(text.data());
  how->environment.push_back(nullptr);
  delete restart.exchange(how.release());
}

PluginTrial::~PluginTrial() {
  delete restart.exchange(nullptr);
}

void forbid_restart() noexcept {
  restart_forbidden = true;
}

void on_plugin_fault(std::function<void(const std::string&)> then) {
  // Handlers of exit() run in the opposite order: this one before those of libraries that the run has begun to use, which would
  // close the archive without its last words.
  if (then) std::atexit(on_exit);
  const std::lock_guard lock(action_mutex);
  action = std::move(then);
}

void end_after_hang(const PluginIdentity& plugin, const char* function, std::chrono::nanoseconds taken, bool stopping) {
  while (ending.exchange(true)) pause();  // the process is about to end
  end_by(plugin.label + " (" + plugin.file + ") has not returned from " + function + "() for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(taken).count()) + " s" +
         (stopping ? ", and a signal asked the run to end; what is newer than the last checkpoint is lost"
                   : "; if it is not stuck, set CONSIST_PLUGIN_TIMEOUT to more seconds"));
}

FloatModeGuard::FloatModeGuard(const PluginIdentity& plugin) noexcept : plugin_(plugin), before_(float_mode()) {}

FloatModeGuard::~FloatModeGuard() {
  const std::uint64_t now = float_mode();
  if ((now & subnormals) == (before_ & subnormals)) return;
  set_float_mode((now & ~subnormals) | (before_ & subnormals));
  log::warn(plugin_.label + " (" + plugin_.file +
            ") switched subnormal numbers off for the whole process, as code linked with -Ofast or -ffast-math does; that was "
            "undone. Link it without");
}

}  // namespace consist
