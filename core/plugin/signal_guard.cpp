#include "core/plugin/signal_guard.h"

#include <array>
#include <cstdlib>
#include <string>

#include "consist/log.h"

namespace consist {
namespace {

struct KeptSignal {
  int number;
  const char* name;
};
constexpr std::array kept_signals{KeptSignal{SIGINT, "SIGINT"},   KeptSignal{SIGTERM, "SIGTERM"}, KeptSignal{SIGHUP, "SIGHUP"},
                                  KeptSignal{SIGSEGV, "SIGSEGV"}, KeptSignal{SIGBUS, "SIGBUS"},   KeptSignal{SIGFPE, "SIGFPE"},
                                  KeptSignal{SIGILL, "SIGILL"},   KeptSignal{SIGABRT, "SIGABRT"}};

struct sigaction action_of(int signal) {
  struct sigaction found {};
  sigaction(signal, nullptr, &found);
  return found;
}

bool same_handler(const struct sigaction& a, const struct sigaction& b) {
  if ((a.sa_flags & SA_SIGINFO) != (b.sa_flags & SA_SIGINFO)) return false;
  return (a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler;
}

}  // namespace

void keep_backtraces_off() noexcept {
  setenv("IPATH_NO_BACKTRACE", "1", 0);  // libinfinipath, of PSM
  setenv("HFI_NO_BACKTRACE", "1", 0);    // libpsm2, of Omni-Path
}

SignalGuard::SignalGuard(const PluginIdentity& plugin) : plugin_(plugin) {
  for (const KeptSignal& signal : kept_signals) before_.push_back(action_of(signal.number));
}

SignalGuard::~SignalGuard() {
  std::string names;
  for (std::size_t k = 0; k < kept_signals.size(); ++k) {
    if (same_handler(action_of(kept_signals[k].number), before_[k])) continue;
    sigaction(kept_signals[k].number, &before_[k], nullptr);
    names += (names.empty() ? "" : ", ") + std::string(kept_signals[k].name);
  }
  if (names.empty()) return;
  log::warn(plugin_.label + " (" + plugin_.file + "), or a library that it loads, took over the handling of " + names +
            "; that was undone");
}

}  // namespace consist
