// Ranks that die while they train, and Ctrl-C: who is left ends soon and says why, what was recorded stays, and a resumed run
// goes on as if nothing had happened. CONSIST_FAULT_ROUNDS sets how many kills are tried (default 3 over socket, 1 over efa),
// CONSIST_FAULT_SEED their moments (default: by the clock; printed).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "consist/handshake.h"
#include "consist/socket.h"
#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/runtime/short_steps.h"
#include "tests/temporary_folder.h"
#include "tests/terminal_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using test::TerminalProcess;
using ::testing::HasSubstr;

constexpr int ranks = 3;
constexpr int steps = 400;
constexpr std::size_t endless = 1'000'000;  // steps of a run that is interrupted
constexpr auto most_time_to_end = 10s;

class Fault : public ::testing::Test {
 protected:
  /// `consist train` of a tiny model with an archive.
  std::vector<std::string> train(const std::string& archive, const std::vector<std::string>& more,
                                 std::size_t last_step = steps) const {
    return test::short_steps(archive, last_step, more);
  }

  TemporaryFolder folder_;
};

/// A transport, as words of the command line.
struct TransportWords {
  const char* name;
  std::vector<std::string> words;
  int rounds;  ///< kills by default
};

class FaultOver : public Fault, public ::testing::WithParamInterface<TransportWords> {
 protected:
  std::vector<std::string> train(const std::string& archive, std::vector<std::string> more, std::size_t last_step = steps) const {
    more.insert(more.end(), GetParam().words.begin(), GetParam().words.end());
    return Fault::train(archive, more, last_step);
  }
};

std::vector<TransportWords> transports() {
  std::vector<TransportWords> all{{"socket", {"--transport=socket"}, 3}};
#ifdef CONSIST_WITH_LIBFABRIC
  all.push_back({"efa_tcp", {"--transport=efa", "--efa.provider=tcp"}, 1});
#endif
  return all;
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

/// The largest N of "step N/" in what a progress line showed; 0 if it showed none.
int last_step_shown(const std::string& output) {
  int last = 0;
  for (std::size_t at = 0; (at = output.find("step ", at)) != std::string::npos; at += 5) {
    const int step = std::atoi(output.c_str() + at + 5);
    const std::size_t slash = output.find_first_not_of("0123456789", at + 5);
    if (slash != std::string::npos && output[slash] == '/') last = std::max(last, step);
  }
  return last;
}

/// The newest checkpoint's step; 0 if there is none.
int newest_checkpoint(const std::filesystem::path& folder) {
  int newest = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find('.') == std::string::npos) newest = std::max(newest, std::atoi(name.c_str() + 5));
  }
  return newest;
}

/// All ranks of a job as children of this test, so that each one's end can be seen.
std::vector<TerminalProcess> start_ranks(const std::vector<std::string>& words) {
  network::Socket listener = network::listen_on("127.0.0.1", 0);
  std::map<std::string, std::string> variables{{"WORLD_SIZE", std::to_string(ranks)},
                                               {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", std::to_string(network::local_endpoint(listener).port)},
                                               {"CONSIST_JOB_TOKEN", network::random_hex(32)}};
  std::vector<TerminalProcess> processes;
  processes.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    if (rank == 0) variables["CONSIST_JOB_FD"] = std::to_string(listener.fd());
    if (rank == 1) variables.erase("CONSIST_JOB_FD");
    processes.emplace_back(words, variables, rank == 0 ? listener.fd() : -1);
  }
  return processes;
}

/// The environment of a rank that waits for another one.
std::map<std::string, std::string> rank_zero_of_two(const network::Socket& listener) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(network::local_endpoint(listener).port)},
          {"CONSIST_JOB_TOKEN", network::random_hex(32)},
          {"CONSIST_JOB_FD", std::to_string(listener.fd())}};
}

/// Reads what the processes have printed. Returns true if all have ended.
bool poll_all(std::vector<TerminalProcess>& processes) {
  bool all = true;
  for (TerminalProcess& process : processes) all = process.poll(1ms) && all;
  return all;
}

/// Expects that a killed rank's others ended soon and named it. `slowest`: the longest time in seconds that one took so far.
void expect_ended_by(const std::vector<TerminalProcess>& processes, int victim, TerminalProcess::Clock::time_point killed,
                     double& slowest) {
  for (int rank = 0; rank < ranks; ++rank) {
    const TerminalProcess& process = processes[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_EQ(process.status(), 128 + SIGKILL);
      continue;
    }
    ASSERT_GE(process.status(), 0) << "rank " << rank << " still runs:\n" << process.output();
    EXPECT_NE(process.status(), 0) << "rank " << rank;
    EXPECT_LT(process.status(), 128) << "rank " << rank << " crashed:\n" << process.output();
    EXPECT_LT(process.ended_at() - killed, most_time_to_end) << "rank " << rank;
    slowest = std::max(slowest, std::chrono::duration<double>(process.ended_at() - killed).count());
    EXPECT_THAT(process.output(), HasSubstr("rank " + std::to_string(victim) + " on host")) << "what rank " << rank << " says";
    EXPECT_THAT(process.output(), HasSubstr("died")) << "what rank " << rank << " says";
  }
}

TEST_P(FaultOver, AKilledRankEndsTheOthersAndTheRunCanBeResumed) {
  const auto rounds = static_cast<int>(number_from("CONSIST_FAULT_ROUNDS", static_cast<std::uint64_t>(GetParam().rounds)));
  const std::uint64_t seed = number_from("CONSIST_FAULT_SEED", std::random_device()());
  std::printf("CONSIST_FAULT_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);

  const std::string whole = folder_ / "whole.h5";
  const test::ChildResult uninterrupted = test::run_child(train(whole, {"--ranks=" + std::to_string(ranks)}));
  ASSERT_EQ(uninterrupted.status, 0) << uninterrupted.output;
  const std::vector<double> expected = ArchiveReader(whole).column("loss");
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
  double slowest = 0;
  int resumed_from_checkpoints = 0;

  for (int round = 0; round < rounds; ++round) {
    const int victim = static_cast<int>(random() % ranks);
    const int kill_after_step = 1 + static_cast<int>(random() % (steps * 3 / 4));
    const auto moment = std::chrono::microseconds(random() % 100'000);
    SCOPED_TRACE("round " + std::to_string(round) + ": rank " + std::to_string(victim) + " killed after step " +
                 std::to_string(kill_after_step));
    const std::string name = "round" + std::to_string(round);
    const std::filesystem::path checkpoints = folder_.path() / (name + ".checkpoints");
    const std::vector<std::string> saving{"--checkpoint=" + checkpoints.string(), "--checkpoint-every=20"};

    std::vector<TerminalProcess> processes = start_ranks(train(folder_ / (name + ".h5"), saving, endless));
    const auto give_up = TerminalProcess::Clock::now() + 60s;
    while (last_step_shown(processes[0].output()) < kill_after_step) {
      ASSERT_FALSE(poll_all(processes)) << "the run ended by itself:\n" << processes[0].output();
      ASSERT_LT(TerminalProcess::Clock::now(), give_up) << processes[0].output();
    }
    std::this_thread::sleep_for(moment);
    processes[static_cast<std::size_t>(victim)].signal(SIGKILL);
    const auto killed = TerminalProcess::Clock::now();
    while (!poll_all(processes) && TerminalProcess::Clock::now() < killed + 20s) {
    }

    ASSERT_NO_FATAL_FAILURE(expect_ended_by(processes, victim, killed, slowest));

    // Whatever was shown as finished is in the archive, and is what the uninterrupted run had.
    const ArchiveReader archive(folder_ / (name + ".h5"));
    const std::vector<double> recorded = archive.column("loss");
    EXPECT_GE(static_cast<int>(recorded.size()), last_step_shown(processes[0].output()));
    const std::size_t known = std::min(recorded.size(), expected.size());  // on a busy machine the signal may come late
    EXPECT_TRUE(std::equal(recorded.begin(), recorded.begin() + static_cast<std::ptrdiff_t>(known), expected.begin()));
    EXPECT_EQ(archive.status(), victim == 0 ? "cut off" : "failed");

    const int saved = newest_checkpoint(checkpoints);
    // The newest may still have been in the writing, beside the steps that were recorded. The one before is whole by then: a save
    // waits for the save before.
    EXPECT_GE(saved, (static_cast<int>(recorded.size()) - 1) / 20 * 20 - 20)
        << "a checkpoint before the one that was being written is missing";
    if (saved >= steps) continue;
    std::vector<std::string> resuming = saving;
    resuming.insert(resuming.end(), {"--resume", "--ranks=" + std::to_string(ranks)});
    const test::ChildResult resumed = test::run_child(train(folder_ / (name + ".resumed.h5"), resuming));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    if (saved > 0) {
      EXPECT_THAT(resumed.output, HasSubstr("resumed after step " + std::to_string(saved)));
      ++resumed_from_checkpoints;
    }
    const ArchiveReader rest(folder_ / (name + ".resumed.h5"));
    const std::vector<double> losses = rest.column("loss");
    ASSERT_EQ(losses.size(), expected.size() - static_cast<std::size_t>(saved));
    EXPECT_EQ(rest.column("step").front(), saved + 1);
    EXPECT_TRUE(std::equal(losses.begin(), losses.end(), expected.begin() + saved)) << "losses after resuming differ";
  }
  std::printf("%d kills, %d resumed from a checkpoint; the others ended after at most %.2f s\n", rounds, resumed_from_checkpoints,
              slowest);
}

TEST_P(FaultOver, AStuckRankEndsTheOthersByTheTimeout) {
  std::vector<TerminalProcess> processes = start_ranks(train(folder_ / "run.h5", {"--timeout=2"}, endless));
  const auto pump = [&](std::size_t first, std::size_t count) {
    bool all = true;
    for (std::size_t rank = first; rank < first + count; ++rank) all = processes[rank].poll(1ms) && all;
    return all;
  };
  const auto give_up = TerminalProcess::Clock::now() + 60s;
  while (last_step_shown(processes[0].output()) < 5) {
    ASSERT_FALSE(pump(0, ranks)) << "the run ended by itself:\n" << processes[0].output();
    ASSERT_LT(TerminalProcess::Clock::now(), give_up) << processes[0].output();
  }
  constexpr std::size_t victim = ranks - 1;
  processes[victim].signal(SIGSTOP);
  const auto stopped = TerminalProcess::Clock::now();
  while (!pump(0, victim) && TerminalProcess::Clock::now() < stopped + 20s) {
  }
  for (std::size_t rank = 0; rank < victim; ++rank) {
    const TerminalProcess& process = processes[rank];
    ASSERT_GE(process.status(), 0) << "rank " << rank << " still runs:\n" << process.output();
    EXPECT_NE(process.status(), 0);
    EXPECT_LT(process.status(), 128) << "rank " << rank << " crashed:\n" << process.output();
    EXPECT_LT(process.ended_at() - stopped, most_time_to_end + 2s);
    EXPECT_THAT(process.output(), HasSubstr("rank " + std::to_string(victim) + " on host")) << "what rank " << rank << " says";
  }
}

// It finds the others gone when it goes on, and is the only one that can write down why.
TEST_F(Fault, ARankZeroThatWasStoppedAndGoesOnIsNamedByAllAndRecordsItself) {
  std::vector<TerminalProcess> processes = start_ranks(train(folder_ / "run.h5", {"--timeout=2"}, endless));
  const auto pump = [&](std::size_t first) {
    bool all = true;
    for (std::size_t rank = first; rank < processes.size(); ++rank) all = processes[rank].poll(1ms) && all;
    return all;
  };
  const auto give_up = TerminalProcess::Clock::now() + 60s;
  while (last_step_shown(processes[0].output()) < 5) {
    ASSERT_FALSE(pump(0)) << "the run ended by itself:\n" << processes[0].output();
    ASSERT_LT(TerminalProcess::Clock::now(), give_up) << processes[0].output();
  }
  processes[0].signal(SIGSTOP);
  const auto stopped = TerminalProcess::Clock::now();
  while (!pump(1) && TerminalProcess::Clock::now() < stopped + 20s) {
  }
  for (std::size_t rank = 1; rank < processes.size(); ++rank) {
    ASSERT_GE(processes[rank].status(), 0) << "rank " << rank << " still runs:\n" << processes[rank].output();
    EXPECT_THAT(processes[rank].output(), HasSubstr("rank 0 on host")) << "what rank " << rank << " says";
    EXPECT_THAT(processes[rank].output(), HasSubstr("no sign of life")) << "what rank " << rank << " says";
  }
  processes[0].signal(SIGCONT);
  EXPECT_GT(processes[0].wait(20s), 0);
  EXPECT_THAT(processes[0].output(), HasSubstr("rank 0 on host"));
  const ArchiveReader archive(folder_ / "run.h5");
  EXPECT_EQ(archive.status(), "failed");
  EXPECT_THAT(archive.reason(), ::testing::AllOf(::testing::StartsWith("rank 0 on host"), HasSubstr("was stopped"),
                                                 ::testing::Not(HasSubstr("died"))));
}

INSTANTIATE_TEST_SUITE_P(Transports, FaultOver, ::testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

TEST_F(Fault, CtrlCEndsAllRanksAfterTheStepAndTheRunCanBeResumed) {
  for (const char* count : {"1", "3"}) {
    SCOPED_TRACE(count);
    const std::string name = "interrupted" + std::string(count);
    const std::string option = "--ranks=" + std::string(count);
    const std::filesystem::path checkpoints = folder_.path() / (name + ".checkpoints");
    TerminalProcess launcher(train(folder_ / (name + ".h5"), {option, "--checkpoint=" + checkpoints.string()}, endless));
    launcher.wait_for("step 1/", 60s);
    launcher.poll(150ms);
    launcher.signal(SIGINT);
    const auto interrupted = TerminalProcess::Clock::now();
    EXPECT_EQ(launcher.wait(30s), 130) << launcher.output();
    EXPECT_LT(launcher.ended_at() - interrupted, most_time_to_end);

    const ArchiveReader archive(folder_ / (name + ".h5"));
    EXPECT_EQ(archive.status(), "stopped");
    EXPECT_FALSE(archive.reason().empty());
    const std::vector<double> losses = archive.column("loss");
    ASSERT_GE(static_cast<int>(losses.size()), last_step_shown(launcher.output()));
    EXPECT_EQ(newest_checkpoint(checkpoints), static_cast<int>(losses.size())) << "what was done is saved";

    const std::size_t last = losses.size() + 20;
    const test::ChildResult resumed = test::run_child(
        train(folder_ / (name + ".resumed.h5"), {option, "--checkpoint=" + checkpoints.string(), "--resume"}, last));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    const std::vector<double> rest = ArchiveReader(folder_ / (name + ".resumed.h5")).column("loss");
    const test::ChildResult uninterrupted = test::run_child(train(folder_ / (name + ".whole.h5"), {option}, last));
    ASSERT_EQ(uninterrupted.status, 0) << uninterrupted.output;
    std::vector<double> both = losses;
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, ArchiveReader(folder_ / (name + ".whole.h5")).column("loss"));
  }
}

TEST_F(Fault, AHangupSavesWhatWasDone) {
  for (const char* count : {"1", "2"}) {
    SCOPED_TRACE(count);
    const std::string name = "hangup" + std::string(count);
    const std::filesystem::path checkpoints = folder_.path() / (name + ".checkpoints");
    TerminalProcess launcher(
        train(folder_ / (name + ".h5"), {"--ranks=" + std::string(count), "--checkpoint=" + checkpoints.string()}, endless));
    launcher.wait_for("step 1/", 60s);
    // The kernel and the shell each send one when a terminal goes.
    launcher.signal(SIGHUP);
    launcher.poll(700ms);
    launcher.signal(SIGHUP);
    EXPECT_EQ(launcher.wait(30s), 130) << launcher.output();
    const ArchiveReader archive(folder_ / (name + ".h5"));
    EXPECT_EQ(archive.status(), "stopped");
    EXPECT_EQ(newest_checkpoint(checkpoints), static_cast<int>(archive.column("loss").size()));
    EXPECT_THAT(launcher.output(), HasSubstr("there is a checkpoint in " + checkpoints.string()));
    EXPECT_THAT(launcher.output(), HasSubstr("with --resume"));
  }
}

TEST_F(Fault, ASignalBeforeTheFirstStepDoesNotWaitForIt) {
  // Rank 1 is never started: what rank 0 waits for would come to an end by the timeout only.
  network::Socket listener = network::listen_on("127.0.0.1", 0);
  const std::map<std::string, std::string> variables = rank_zero_of_two(listener);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    TerminalProcess rank(train(folder_ / "run.h5", {}, endless), variables, listener.fd());
    const auto give_up = TerminalProcess::Clock::now() + 30s;
    const auto ready = [&] {
      const auto path = "/proc/" + std::to_string(rank.pid()) + "/status";
      std::ifstream status(path);
      for (std::string line; std::getline(status, line);) {
        // Bits of the signals that it catches.
        if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1U) != 0;
      }
      return false;
    };
    while (!ready()) {
      ASSERT_FALSE(rank.poll(5ms)) << rank.output();
      ASSERT_LT(TerminalProcess::Clock::now(), give_up);
    }
    const auto sent = TerminalProcess::Clock::now();
    rank.signal(signal);
    EXPECT_EQ(rank.wait(30s), 130) << rank.output();
    EXPECT_LT(rank.ended_at() - sent, 3s);
    EXPECT_THAT(rank.output(), HasSubstr("before the first step; nothing was trained"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run.h5"));
  }
}

TEST_F(Fault, TheTimeoutThatIsGivenIsTheOneThatIsTaken) {
  network::Socket listener = network::listen_on("127.0.0.1", 0);
  TerminalProcess rank(train(folder_ / "run.h5", {"--timeout=3"}, endless), rank_zero_of_two(listener), listener.fd());
  const auto start = TerminalProcess::Clock::now();
  EXPECT_EQ(rank.wait(30s), 3) << rank.output();
  EXPECT_THAT(rank.output(), HasSubstr("rank 1 of 2 did not join within 3 s"));
  EXPECT_GE(rank.ended_at() - start, 3s);
  EXPECT_LT(rank.ended_at() - start, 4500ms);
}

TEST_F(Fault, CtrlCTwiceEndsAtOnce) {
  TerminalProcess launcher(train(folder_ / "run.h5", {"--ranks=2"}, endless));
  launcher.wait_for("step 1/", 60s);
  launcher.signal(SIGINT);
  launcher.signal(SIGINT);
  const auto interrupted = TerminalProcess::Clock::now();
  EXPECT_NE(launcher.wait(30s), 0);
  EXPECT_LT(launcher.ended_at() - interrupted, most_time_to_end);
  EXPECT_GE(static_cast<int>(ArchiveReader(folder_ / "run.h5").column("loss").size()), last_step_shown(launcher.output()));
}

}  // namespace
}  // namespace consist
