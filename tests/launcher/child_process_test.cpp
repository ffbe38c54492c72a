// Children that this process starts (launch/start/child_process.h).
#include "launch/start/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

namespace consist {
namespace {

std::atomic<int> noted{0};

extern "C" void note(int number) {
  noted = number;
}

TEST(RunChild, ASignalThatCameBeforeTheChildWasAProgramEndsIt) {
  // As in a comparison: a handler notes the signal, and whoever waits for the child passes it on, here at once. The child is then
  // about to become a program, and still has the handler.
  struct sigaction noting {};
  struct sigaction before {};
  noting.sa_handler = note;
  sigemptyset(&noting.sa_mask);
  ASSERT_EQ(sigaction(SIGINT, &noting, &before), 0);
  const std::atomic<int> asked{SIGINT};
  int status = 128 + SIGINT;
  // Often enough that the signal comes at each moment of a child's beginning.
  for (int i = 0; i < 100 && status == 128 + SIGINT; ++i)
    status = launch::run_child(
        {"as-rank", "wait"}, [](const std::string&) {}, &asked);
  sigaction(SIGINT, &before, nullptr);
  EXPECT_EQ(status, 128 + SIGINT);
  EXPECT_EQ(noted, 0);
}

}  // namespace
}  // namespace consist
