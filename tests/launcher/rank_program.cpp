#include "tests/launcher/rank_program.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "consist/error.h"
#include "core/collectives/ring.h"
#include "core/job/environment.h"
#include "core/job/progress.h"
#include "launch/cli/exit_status.h"
#include "launch/start/continuation.h"
#include "plugins/transports/socket/connect.h"

namespace consist::testing {
namespace {

using namespace std::chrono_literals;

volatile sig_atomic_t interrupted = 0;

struct Fault {
  std::string kind;
  int rank = -1;
  int step = -1;
};

/// Before the rank has joined.
void suffer_early(const std::string& kind) {
  if (kind == "kill-early") raise(SIGKILL);
  if (kind == "fail-early") throw SystemError("no such device");
  if (kind == "late") {
    signal(SIGINT, SIG_DFL);
    std::this_thread::sleep_for(300ms);  // the others wait for this rank by then
    std::fputs("late\n", stderr);
    std::this_thread::sleep_for(60s);
  }
}

void suffer(const std::string& kind, const Job& job) {
  if (kind == "kill-always") raise(SIGKILL);
  if (job.generation() > 0) return;
  if (kind == "kill") raise(SIGKILL);
  if (kind == "stop") raise(SIGSTOP);
  if (kind == "spin") {
    while (!job.failed()) std::this_thread::sleep_for(1ms);
    job.check();
  }
}

void train(int steps, std::chrono::milliseconds timeout, const Fault& fault, const Continuation& continuation) {
  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = timeout;
  if (fault.rank == address.rank) suffer_early(fault.kind);
  const auto job = join_job(address);
  std::atomic<int> step{0};
  std::atomic<int> instruction{0};
  job->set_progress([&] { return text_of(Progress{step, instruction}, instruction == 1 ? "linear" : "all_reduce"); });
  try {
    GroupRequest group{"data.0", {}, job->rank(), "cpu"};
    for (int rank = 0; rank < job->size(); ++rank) group.ranks.push_back(rank);
    RingCommunicator communicator(connect_members(*job, group, {}));
    std::vector<float> gradient(100'000);
    // All ranks must stop after the same step, so the wish to stop is summed as well.
    for (bool stop = false; step < steps && !stop; ++step) {
      if (continuation.board != nullptr) continuation.board->begin_step(job->local_rank(), step + 1);
      instruction = 1;
      if (fault.rank == job->rank() && fault.step == step) suffer(fault.kind, *job);
      gradient.assign(gradient.size(), 1.0F);
      gradient[0] = interrupted != 0 ? 1.0F : 0.0F;
      std::this_thread::sleep_for(2ms);
      instruction = 2;
      communicator.all_reduce(gradient.data(), static_cast<std::int64_t>(gradient.size()), DType::f32, nullptr);
      if (gradient[1] != static_cast<float>(job->size())) throw DataError("a wrong sum");
      stop = gradient[0] > 0;
      if (job->rank() == 0 && step == 0) {
        std::puts("started");
        std::fflush(stdout);
      }
    }
    job->leave(10s);
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception& error) {
    job->fail(error.what());
    throw;
  }
  if (job->rank() == 0) std::printf("ended after step %d%s\n", step.load(), interrupted != 0 ? ", interrupted" : "");
}

}  // namespace

int run_rank(const std::vector<std::string>& words) {
  const int rank = std::stoi(process_environment()("RANK").value_or("0"));
  if (words[0] == "exit") {
    if (std::stoi(words[1]) == rank) return std::stoi(words[2]);
    std::this_thread::sleep_for(300ms);
    return 1;
  }
  if (words[0] == "say") {
    std::printf("output of %d\n", rank);
    std::fprintf(stderr, "first error of %d\n\033[2Jcleared\r\nsecond error of %d", rank, rank);
    return 0;
  }
  if (words[0] == "wait") {
    signal(SIGTERM, SIG_IGN);
    std::puts("started");
    std::fflush(stdout);
    std::this_thread::sleep_for(60s);
    return 0;
  }
  if (words[0] == "pids") {
    std::ofstream(words[1] + "/" + std::to_string(rank)) << getpid() << std::endl;
    std::this_thread::sleep_for(60s);
    return 0;
  }
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  launch::ReplacingLauncher launcher(process_environment());
  const auto told = [&](const std::exception& error, int blamed) {
    launcher.tell_end(rank, blamed, error.what());
    std::fprintf(stderr, "ends: %s\n", error.what());
  };
  try {
    Fault fault;
    if (words.size() > 3) fault = {words[3], std::stoi(words[4]), std::stoi(words[5])};
    train(std::stoi(words[1]), std::chrono::milliseconds(std::stoi(words[2])), fault, launcher.continuation(0));
    return 0;
  } catch (const PeerError& error) {
    told(error, error.rank());
    return exit_peer_failed;
  } catch (const std::exception& error) {
    told(error, rank);
    return exit_failed;
  }
}

}  // namespace consist::testing
