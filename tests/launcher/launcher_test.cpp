// The launcher with real processes: statuses, output, signals, and ranks that are killed or stopped in the middle of their work.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launch/cli/exit_status.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

/// A launcher with its ranks, as a child process whose two outputs are read together with its end.
class Launched {
 public:
  explicit Launched(const std::vector<std::string>& words) {
    int output[2];
    int errors[2];
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    std::vector<std::string> texts{"test_launcher", "as-launcher"};
    texts.insert(texts.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0)
      throw std::runtime_error("spawn");
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    close(errors[1]);
    pipes_[0] = output[0];
    pipes_[1] = errors[0];
  }
  ~Launched() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (open_[0]) close(pipes_[0]);
    close(pipes_[1]);
  }

  void signal(int number) const { kill(pid_, number); }
  /// As `| head` does when it has seen enough.
  void close_output() {
    close(pipes_[0]);
    open_[0] = false;
  }

  /// Reads until `text` has come on the standard output, or the end.
  void wait_for_output(const std::string& text) {
    while (output.find(text) == std::string::npos && read_some()) {
    }
  }
  void wait_for_error(const std::string& text) {
    while (errors.find(text) == std::string::npos && read_some()) {
    }
  }
  /// Reads both outputs to their end, which comes when the launcher and all ranks have ended; the status as a shell shows it.
  int wait() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::string output;
  std::string errors;

 private:
  bool read_some() {
    pollfd entries[2] = {{open_[0] ? pipes_[0] : -1, POLLIN, 0}, {open_[1] ? pipes_[1] : -1, POLLIN, 0}};
    if ((!open_[0] && !open_[1]) || poll(entries, 2, 60'000) <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (entries[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = read(pipes_[i], buffer, sizeof(buffer));
      if (count <= 0 && i == 0) close(pipes_[0]);
      if (count <= 0) open_[i] = false;
      if (count > 0) (i == 0 ? output : errors).append(buffer, static_cast<std::size_t>(count));
    }
    return true;
  }

  pid_t pid_ = -1;
  int pipes_[2] = {-1, -1};
  bool open_[2] = {true, true};
};

int count_of(const std::string& text, const std::string& what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// A process that nobody has collected yet is a zombie, and has ended as well.
bool ends_within(pid_t pid, std::chrono::milliseconds limit) {
  for (const auto deadline = Clock::now() + limit; Clock::now() < deadline; std::this_thread::sleep_for(5ms)) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(status >> number >> name >> state) || state == "Z" || state == "X") return true;
  }
  return false;
}

TEST(Launcher, RunsAJobToItsEnd) {
  for (const char* ranks : {"1", "2", "4"}) {
    Launched job({ranks, "20000", "train", "30", "20000"});
    EXPECT_EQ(job.wait(), 0) << job.errors;
    EXPECT_EQ(job.output, "started\nended after step 30\n");
    EXPECT_EQ(job.errors, "");
  }
}

TEST(Launcher, ShowsRankZeroAndTheErrorsOfTheOthers) {
  Launched job({"3", "20000", "say"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output, "output of 0\n");
  EXPECT_THAT(job.errors, AllOf(HasSubstr("first error of 0\n"), HasSubstr("[rank 1] first error of 1\n"),
                                HasSubstr("[rank 2] second error of 2\n"), Not(HasSubstr("[rank 0]"))));
  EXPECT_THAT(job.errors, HasSubstr("[rank 1] \\u001b[2Jcleared\\u000d\n")) << "what a terminal would obey is shown";
}

TEST(Launcher, ReturnsTheFirstFailure) {
  Launched job({"3", "20000", "exit", "1", "7"});
  EXPECT_EQ(job.wait(), 7);
}

TEST(Launcher, RefusesAnAbsurdNumberOfRanks) {
  Launched job({"0", "20000", "say"});
  EXPECT_EQ(job.wait(), 99);
  EXPECT_THAT(job.errors, HasSubstr("1 to 1024 ranks"));
}

// Every rank in turn dies by SIGKILL amid its work; all others must say so and end within ten seconds.
TEST(Launcher, AKilledRankIsNamedByAllOthers) {
  for (const int dead : {0, 1, 2}) {
    const auto start = Clock::now();
    Launched job({"3", "20000", "train", "100000", "60000", "kill", std::to_string(dead), "25"});
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_LT(Clock::now() - start, 10s);
    EXPECT_EQ(count_of(job.errors, "ends: rank " + std::to_string(dead) + " on host"), 2) << job.errors;
    EXPECT_EQ(count_of(job.errors, "died"), 2) << job.errors;
    EXPECT_EQ(count_of(job.errors, "last heartbeat at step "), 2) << job.errors;
    EXPECT_THAT(job.errors, HasSubstr("rank " + std::to_string(dead) + " (process "));
    EXPECT_THAT(job.errors, HasSubstr("signal 9"));
  }
}

TEST(Launcher, AStoppedRankIsNamedAndRemoved) {
  const auto start = Clock::now();
  Launched job({"3", "3000", "train", "100000", "1500", "stop", "2", "25"});
  job.wait_for_error("ends: rank 2 on host");
  const auto failed = Clock::now();
  EXPECT_NE(job.wait(), 0);
  EXPECT_LT(Clock::now() - start, 15s);
  EXPECT_GE(Clock::now() - failed, 2500ms) << "the grace";
  EXPECT_LT(Clock::now() - failed, 5s);
  EXPECT_EQ(count_of(job.errors, "ends: rank 2 on host"), 2) << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("last heartbeat at step "));
}

TEST(Launcher, AStuckRankIsNamedWithItsInstruction) {
  Launched job({"3", "20000", "train", "100000", "1500", "spin", "1", "25"});
  EXPECT_EQ(job.wait(), exit_peer_failed);
  EXPECT_EQ(count_of(job.errors, "ends: rank 1 on host"), 3) << job.errors;
  EXPECT_EQ(count_of(job.errors, "is stuck, last at step 25, instruction 1: linear"), 3) << job.errors;
}

TEST(Launcher, ReplacesAllRanksWhenOneIsKilled) {
  for (const char* dead : {"0", "2"}) {
    const auto start = Clock::now();
    Launched job({"3", "20000/2", "train", "60", "60000", "kill", dead, "25"});
    EXPECT_EQ(job.wait(), 0) << job.errors;
    EXPECT_LT(Clock::now() - start, 10s);
    EXPECT_EQ(job.output, "started\nstarted\nended after step 60\n");
    EXPECT_THAT(job.errors,
                HasSubstr("consist launch: rank " + std::string(dead) +
                          " was ended by signal 9 (Killed) in step 26; all ranks are started anew, restart 1 of 2\n"));
  }
}

TEST(Launcher, ReplacesAllRanksWhenOneHangs) {
  const auto start = Clock::now();
  Launched job({"3", "20000/1", "train", "60", "1500", "stop", "2", "25"});
  EXPECT_EQ(job.wait(), 0) << job.errors;
  EXPECT_LT(Clock::now() - start, 1500ms + 10s);
  EXPECT_THAT(job.errors, HasSubstr("rank 2 did not go on in step 26; all ranks are started anew, restart 1 of 1"));
  EXPECT_THAT(job.errors, HasSubstr("rank 2 does not end by itself; sending it SIGKILL"));
}

TEST(Launcher, DoesNotRepeatAFailure) {
  Launched job({"2", "20000/5", "train", "60", "60000", "kill-always", "1", "25"});
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_EQ(count_of(job.errors, "started anew, restart"), 1) << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("the job is not started anew: the same happened before restart 1"));
}

TEST(Launcher, RefusalsAreNotRepeated) {
  Launched job({"3", "20000/5", "exit", "1", "2"});
  EXPECT_EQ(job.wait(), exit_usage);
  EXPECT_THAT(job.errors, HasSubstr("what was refused would be refused again"));
}

TEST(Launcher, CtrlCDuringARestartEndsIt) {
  const auto start = Clock::now();
  Launched job({"2", "20000/5", "train", "100000", "60000", "kill", "1", "25"});
  job.wait_for_error("started anew");
  job.signal(SIGINT);
  job.wait();
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(count_of(job.errors, "started anew, restart"), 1) << job.errors;
}

TEST(Launcher, CtrlCEndsAllRanksInGoodOrder) {
  Launched job({"3", "20000", "train", "100000", "20000"});
  job.wait_for_output("started");
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 0) << job.errors;
  EXPECT_THAT(job.output, HasSubstr("interrupted"));
  EXPECT_EQ(job.errors, "");
}

TEST(Launcher, CtrlCThatEndsARankBeforeItJoinedEndsTheOthersToo) {
  const auto start = Clock::now();
  Launched job({"2", "20000", "train", "100000", "60000", "late", "1", "0"});
  job.wait_for_error("late");
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_THAT(job.errors, HasSubstr("rank 1 ended before all ranks had joined the job"));
}

TEST(Launcher, AStatusThatSaysThatTheRankWasAskedToEndIsNoEndByASignal) {
  Launched job({"2", "20000", "exit", "1", "130"});
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.errors, Not(HasSubstr("was ended by signal")));
}

TEST(Launcher, AnIgnoredHangupStaysIgnored) {
  // As nohup starts it. The grace is shorter than the rest of the job: a hangup that counted would end it.
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Launched job({"2", "300", "train", "400", "20000"});
  ::signal(SIGHUP, before);
  job.wait_for_output("started");
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0) << job.errors;
  EXPECT_THAT(job.output, HasSubstr("ended after step 400"));
  EXPECT_EQ(job.errors, "");
}

TEST(Launcher, ARankThatDiesBeforeItJoinedEndsTheJobAtOnce) {
  for (const char* dead : {"0", "1"}) {
    const auto start = Clock::now();
    Launched job({"3", "20000", "train", "100000", "60000", "kill-early", dead, "0"});
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_LT(Clock::now() - start, 4s);
    EXPECT_THAT(job.errors, AllOf(HasSubstr("rank " + std::string(dead) + " (process "),
                                  HasSubstr("rank " + std::string(dead) + " ended before all ranks had joined the job")));
  }
}

TEST(Launcher, AFailureBeforeJoiningEndsTheJobAtOnce) {
  const auto start = Clock::now();
  Launched job({"2", "20000", "train", "100000", "60000", "fail-early", "1", "0"});
  EXPECT_EQ(job.wait(), exit_failed);
  EXPECT_LT(Clock::now() - start, 4s);
  EXPECT_THAT(job.errors, AllOf(HasSubstr("[rank 1] ends: no such device"), HasSubstr("rank 1 ended before")));
}

TEST(Launcher, GoesOnWhenNobodyReadsItsOutput) {
  Launched job({"2", "20000", "train", "60", "20000"});
  job.wait_for_output("started");
  job.close_output();
  EXPECT_EQ(job.wait(), 0) << job.errors;
  EXPECT_EQ(job.errors, "");
}

TEST(Launcher, KillsRanksThatDoNotListen) {
  const auto start = Clock::now();
  Launched job({"2", "500", "wait"});
  job.wait_for_output("started");
  std::this_thread::sleep_for(200ms);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_GE(Clock::now() - start, 5500ms);  // the grace, and five seconds for SIGTERM
  EXPECT_LT(Clock::now() - start, 8500ms);
  EXPECT_THAT(job.errors, HasSubstr("sending it SIGKILL"));
}

TEST(Launcher, TheRanksDieWithTheLauncher) {
  const auto folder = std::filesystem::temp_directory_path() / ("consist_launcher_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::vector<pid_t> pids;
  {
    Launched job({"2", "20000", "pids", folder});
    const auto deadline = Clock::now() + 20s;
    while (pids.size() < 2 && Clock::now() < deadline) {
      std::this_thread::sleep_for(20ms);
      pids.clear();
      for (const char* rank : {"0", "1"}) {
        pid_t pid = 0;
        if (std::ifstream(folder / rank) >> pid) pids.push_back(pid);
      }
    }
    ASSERT_EQ(pids.size(), 2U);
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);  // the ranks held the other ends of its outputs, so they are gone, too
  }
  for (const pid_t pid : pids) EXPECT_TRUE(ends_within(pid, 5s)) << pid;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace consist
