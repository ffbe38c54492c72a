// The earlier checkpoints outlive a kill at any moment and a disk that fills up.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "consist/error.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/temporary_folder.h"

namespace {

/// Calls that change the disk until the process kills itself; never if negative. Counts in the child only.
long calls_left = -1;

/// While it is not null: "sync PATH" and "rename TO", in order.
std::vector<std::string>* seen = nullptr;

template <typename Function>
Function real(const char* name) {
  if (calls_left == 0) ::raise(SIGKILL);
  if (calls_left > 0) --calls_left;
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// The program's own come before the C library's, for the core library as well.
extern "C" {
ssize_t write(int fd, const void* data, size_t bytes) {
  return real<ssize_t (*)(int, const void*, size_t)>("write")(fd, data, bytes);
}
int fsync(int fd) {
  if (seen != nullptr) seen->push_back("sync " + std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string());
  return real<int (*)(int)>("fsync")(fd);
}
int rename(const char* from, const char* to) noexcept {
  if (seen != nullptr) seen->push_back(std::string("rename ") + to);
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) noexcept {
  return real<int (*)(const char*)>("unlink")(path);
}
int unlinkat(int fd, const char* path, int flags) noexcept {
  return real<int (*)(int, const char*, int)>("unlinkat")(fd, path, flags);
}
int remove(const char* path) noexcept {
  return real<int (*)(const char*)>("remove")(path);
}
}

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A number that a child shares with the test.
class Shared {
 public:
  Shared()
      : value_(
            static_cast<std::atomic<long>*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(value_, 4096); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::atomic<long>& value() { return *value_; }

 private:
  std::atomic<long>* value_;
};

/// Expects what a run must find that starts after a kill: the newest committed checkpoint or a newer one, whole, and nothing
/// unfinished that stays.
void expect_intact(const std::string& folder, long committed) {
  const std::optional<Checkpoint> before = latest_checkpoint(folder);
  CheckpointWriter writer(folder, 2);
  const std::optional<Checkpoint> latest = latest_checkpoint(folder);
  ASSERT_TRUE(latest.has_value()) << "committed: " << committed;
  ASSERT_GE(latest->state().step, committed);
  ASSERT_GE(latest->state().step, before ? before->state().step : 0);
  expect_sound(*latest, latest->state().step);
  save(writer, latest->state().step + 1);
  EXPECT_EQ(steps_in(folder).size(), 2U);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos);
}

// A power failure behind commit() finds the checkpoint under its name.
TEST(CheckpointKill, TheFolderOfCheckpointsIsOnTheDiskBehindTheRename) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  std::vector<std::string> calls;
  seen = &calls;
  save(writer, 10);
  seen = nullptr;
  const auto renamed = std::find(calls.begin(), calls.end(), "rename " + checkpoint_path(folder.path(), 10));
  ASSERT_NE(renamed, calls.end());
  EXPECT_NE(std::find(renamed, calls.end(), "sync " + folder.path().string()), calls.end());
}

TEST(CheckpointKill, AtEveryChangeOfTheDisk) {
  int kills = 0;
  for (long calls = 0;; ++calls) {
    SCOPED_TRACE(calls);
    const TemporaryFolder folder;
    Shared committed;
    const pid_t child = ::fork();
    if (child == 0) {
      {
        CheckpointWriter writer(folder.path(), 2);
        save(writer, 10);
        committed.value() = 10;
        calls_left = calls;
        for (const std::int64_t step : {20, 20, 30}) {  // the second replaces the first
          save(writer, step);
          committed.value() = step;
        }
        calls_left = -1;
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_GE(committed.value(), 10);
    expect_intact(folder.path(), committed.value());
    if (::testing::Test::HasFailure()) return;
    if (WIFEXITED(status)) break;
    ++kills;
  }
  EXPECT_GT(kills, 40) << "the calls were not seen: does the core write through others?";
}

TEST(CheckpointKill, AtRandomTimes) {
  std::mt19937 random(5);
  const TemporaryFolder folder;
  long last = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    Shared committed;
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointWriter writer(folder.path(), 2);
      for (long step = last + 1;; ++step) {
        save(writer, step);
        committed.value() = step;
      }
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (committed.value() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_GT(committed.value(), last);
    expect_intact(folder.path(), committed.value());
    if (::testing::Test::HasFailure()) return;
    last = steps_in(folder.path()).front();
  }
}

/// Runs `body` in a child and returns what it reports.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string report;
    try {
      report = body();
    } catch (const std::exception& error) {
      report = std::string("unexpected: ") + error.what();
    }
    (void)!::write(ends[1], report.data(), report.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string report(8192, '\0');
  report.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], report.data(), report.size()))));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return report;
}

/// Saves step 10, then a step 20 of 4 MB, which is too much; reports the error, having checked what is left.
std::string save_too_much(const std::string& folder, const std::function<void()>& after_first) {
  CheckpointWriter writer(folder, 2);
  save(writer, 10);
  after_first();
  std::string error = "no error";
  try {
    write_checkpoint_file(writer.begin(20), checkpoint_file_name(0), std::vector{ramp_source("x", 1'000'000)});
  } catch (const SystemError& refused) {
    error = refused.what();
    writer.abandon();
  }
  if (std::filesystem::exists(folder + "/step-00000020.partial")) error += " (the unfinished folder is still there)";
  expect_sound(latest_checkpoint(folder).value(), 10);
  save(writer, 30);  // what fits is still written
  expect_sound(latest_checkpoint(folder).value(), 30);
  return ::testing::Test::HasFailure() ? error + " (what is left is not sound)" : error;
}

TEST(CheckpointDiskFull, ALimitOnTheSizeOfFiles) {
  const TemporaryFolder folder;
  const std::string report = in_child([&] {
    return save_too_much(folder.path(), [] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1'000'000, 1'000'000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
  });
  EXPECT_THAT(report, AllOf(HasSubstr(folder / "step-00000020.partial/rank-00000.safetensors"), HasSubstr("File too large"),
                            HasSubstr("it needs 4000"), ::testing::Not(HasSubstr("still there")),
                            ::testing::Not(HasSubstr("not sound")), ::testing::Not(HasSubstr("unexpected"))));
}

TEST(CheckpointDiskFull, AFileSystemOfTwoMegabytes) {
  const TemporaryFolder folder;
  const std::string report = in_child([&]() -> std::string {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return "not permitted";
    if (user != 0) {  // who has no number in the new namespace cannot make files there
      std::ofstream("/proc/self/uid_map") << "0 " + std::to_string(user) + " 1";
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/gid_map") << "0 " + std::to_string(group) + " 1";
    }
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=2m") != 0) return "not permitted";
    return save_too_much(folder.path(), [] {});
  });
  if (report == "not permitted") GTEST_SKIP() << "mounting a small file system is not permitted here";
  EXPECT_THAT(report, AllOf(HasSubstr(folder / "step-00000020.partial/rank-00000.safetensors"), HasSubstr("No space left"),
                            HasSubstr("it needs 4000"), HasSubstr("are free"), ::testing::Not(HasSubstr("still there")),
                            ::testing::Not(HasSubstr("not sound")), ::testing::Not(HasSubstr("unexpected"))));
}

}  // namespace
}  // namespace consist
