#include "launch/start/noted_signals.h"

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstring>

#include "launch/start/stop_signals.h"

namespace consist::launch {
namespace {

constexpr std::int64_t one_wish_ns = 500'000'000;

NotedSignals noted;
std::atomic<std::int64_t> last_wish_ns{0};

extern "C" void note_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (noted.number == 0 || now_ns - last_wish_ns > one_wish_ns) ++noted.wishes;
  last_wish_ns = now_ns;
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
