#include "launch/start/noted_signals.h"

#include <signal.h>

#include <cstdint>
#include <cstring>

#include "core/base/monotonic_ns.h"
#include "launch/start/stop_signals.h"

namespace consist::launch {
namespace {

NotedSignals noted;
std::atomic<std::int64_t> last_wish_ns{0};

extern "C" void note_signal(int signal) {
  const std::int64_t now = monotonic_ns();
  if (noted.number == 0 || std::chrono::nanoseconds(now - last_wish_ns) > same_wish) ++noted.wishes;
  last_wish_ns = now;
  noted.number = signal;
}

}  // namespace

const NotedSignals& noted_signals() {
  return noted;
}

const NotedSignals& note_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);  // without SA_RESTART: whatever waits looks up
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  if (!hangup_is_ignored()) sigaction(SIGHUP, &action, nullptr);
  return noted;
}

std::string signal_text(int signal) {
  return signal == SIGINT ? "SIGINT (Ctrl-C)" : signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : strsignal(signal);
}

}  // namespace consist::launch
