// Whatever append() has returned from survives a kill -9: at random times, and after each single write to the file.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "consist/error.h"
#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "tests/temporary_folder.h"

namespace {

/// Writes until the process kills itself; none if negative. Lives in the child only.
long writes_left = -1;

ssize_t counted_write(const char* name, int fd, const void* data, size_t bytes, off_t offset) {
  using Write = ssize_t (*)(int, const void*, size_t, off_t);
  static const auto real = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, name));
  if (writes_left == 0) {
    real(fd, data, bytes / 2, offset);  // torn
    ::raise(SIGKILL);
  }
  if (writes_left > 0) --writes_left;
  return real(fd, data, bytes, offset);
}

}  // namespace

// HDF5 writes through these: the test program's own come first.
extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return counted_write("pwrite", fd, data, bytes, offset);
}
extern "C" ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return counted_write("pwrite64", fd, data, bytes, offset);
}
extern "C" int ftruncate(int fd, off_t length) {
  static const auto real = reinterpret_cast<int (*)(int, off_t)>(::dlsym(RTLD_NEXT, "ftruncate"));
  if (writes_left == 0) ::raise(SIGKILL);
  if (writes_left > 0) --writes_left;
  return real(fd, length);
}

namespace consist {
namespace {

const std::vector<Column> step_columns = {{"step", "1", "step"},
                                          {"loss", "1", "loss"},
                                          {"grad_norm", "1", "norm"},
                                          {"learning_rate", "1", "rate"},
                                          {"step_time", "s", "time"}};

std::vector<double> row(int step) {
  return {double(step), 1.0 / step, 2.0 / step, 3.0 / step, 4.0 / step};
}

/// Steps that a child has surely written; shared with it.
class Shared {
 public:
  Shared()
      : steps_(static_cast<std::atomic<int>*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  }
  ~Shared() { ::munmap(steps_, 4096); }
  std::atomic<int>& steps() { return *steps_; }

 private:
  std::atomic<int>* steps_;
};

void write_steps(const std::string& path, int first_counted, long writes, int last, std::atomic<int>& done) {
  if (first_counted == 0) writes_left = writes;
  Archive archive(path, true);
  archive.text("/config", R"({"model":"llama"})");
  archive.define_experts({1, 3}, 2);
  archive.define_steps(step_columns);
  for (int step = 1; step <= last; ++step) {
    if (step == first_counted) writes_left = writes;
    archive.append(row(step));
    done = step;
    if (step % 500 == 0) {
      archive.event(step, "checkpoint", "1 MB");
      archive.evaluation({.step = step, .loss = 1.0 / step, .sequences = 64, .seconds = 0.5, .time = double(step)});
      archive.experts({.step = step, .choices = {step, 1, 2, 3}});
    }
  }
  archive.packed_text("/timeline", std::string(100'000, 't'));
  archive.text("/comm", "{}");
  archive.finish("finished", "");
}

void expect_readable(const std::string& path, int at_least) {
  const ArchiveReader reader(path);
  EXPECT_EQ(reader.text("/config"), R"({"model":"llama"})");
  const std::vector<double> steps = reader.column("step");
  ASSERT_GE(int(steps.size()), at_least);
  for (std::size_t c = 0; c < step_columns.size(); ++c) {
    const std::vector<double> values = reader.column(step_columns[c].name);
    ASSERT_EQ(values.size(), steps.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], row(int(i) + 1)[c]) << step_columns[c].name << " " << i;
  }
  EXPECT_NO_THROW(reader.events());
  const std::vector<ArchivedEvaluation> evaluations = reader.evaluations();
  ASSERT_GE(int(evaluations.size()), std::max(at_least - 1, 0) / 500) << "that of the newest step may be on its way";
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    const int step = 500 * (int(i) + 1);
    ASSERT_EQ(evaluations[i].step, step);
    ASSERT_EQ(evaluations[i].loss, 1.0 / step);
    ASSERT_EQ(evaluations[i].sequences, 64);
    ASSERT_EQ(evaluations[i].time, step);
  }
  const std::vector<ArchivedChoices> experts = reader.experts();
  ASSERT_GE(int(experts.size()), std::max(at_least - 1, 0) / 500);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const int step = 500 * (int(i) + 1);
    ASSERT_EQ(experts[i].step, step);
    ASSERT_EQ(experts[i].choices, (std::vector<std::int32_t>{step, 1, 2, 3}));
  }
  // Written once, when the run is over: it is there or not, and if it is torn, reading it says so.
  try {
    const std::string timeline = reader.packed_text("/timeline");
    EXPECT_TRUE(timeline.empty() || timeline.find_first_not_of(std::string("t\0", 2)) == std::string::npos);
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("/timeline"), std::string::npos);
  }
  const std::string status = reader.status();
  EXPECT_TRUE(status == "running" || status == "finished") << status;
}

TEST(ArchiveKill, AtRandomTimes) {
  const TemporaryFolder folder;
  std::mt19937 random(20);
  int farthest = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const std::string path = folder / "run.h5";
    Shared shared;
    const pid_t child = ::fork();
    if (child == 0) {
      write_steps(path, 0, -1, 1'000'000, shared.steps());
      ::_exit(1);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (shared.steps() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_GT(shared.steps(), 0);
    expect_readable(path, shared.steps());
    farthest = std::max(farthest, shared.steps().load());
  }
  EXPECT_GT(farthest, 1024) << "no round reached a second chunk: the test shows less than it claims";
}

/// Kills a child after each single write from step `from` on, until it comes to its end unharmed.
void kill_after_each_write(int from, int last) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  int kills = 0;
  for (long writes = 0;; ++writes) {
    SCOPED_TRACE(writes);
    Shared shared;
    const pid_t child = ::fork();
    if (child == 0) {
      write_steps(path, from, writes, last, shared.steps());
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    expect_readable(path, shared.steps());
    if (::testing::Test::HasFatalFailure()) return;
    if (WIFEXITED(status)) break;
    ++kills;
  }
  EXPECT_GT(kills, 10) << "the writes were not seen: does HDF5 write through another call?";
}

// An archive has its name only when it is readable; the one that it replaces has it until then.
TEST(ArchiveKill, AfterEachWriteOfItsCreation) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  Shared before;
  write_steps(path, -1, -1, 5, before.steps());
  int kills = 0, old = 0;
  for (bool killed = true; killed; ++kills) {
    SCOPED_TRACE(kills);
    Shared shared;
    const pid_t child = ::fork();
    if (child == 0) {
      write_steps(path, 0, kills, 0, shared.steps());
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    killed = WIFSIGNALED(status);
    const ArchiveReader reader(path);
    const bool is_old = reader.status() == "finished" && reader.column("step").size() == 5;
    EXPECT_TRUE(is_old || reader.text("/config") == R"({"model":"llama"})");
    EXPECT_EQ(reader.column("step").size(), is_old ? 5U : 0U);
    for (const std::string& column : reader.columns()) EXPECT_NO_THROW(reader.unit(column));
    old += is_old ? 1 : 0;
  }
  EXPECT_GT(kills, 20);
  EXPECT_GT(old, 10);
}

TEST(ArchiveKill, AfterEachWriteOfTheFirstSteps) {
  kill_after_each_write(1, 3);
}
TEST(ArchiveKill, AfterEachWriteAtANewChunk) {
  kill_after_each_write(1024, 1026);
}
TEST(ArchiveKill, AfterEachWriteAtALaterChunk) {
  kill_after_each_write(3073, 3073);
}
TEST(ArchiveKill, AfterEachWriteAtAnEvent) {
  kill_after_each_write(500, 501);
}

}  // namespace
}  // namespace consist
