// A disk that becomes full while a run writes to it: the run ends with the reason, and what was there before is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A file system in memory of a given size, unmounted at the end. Needs root.
class SmallDisk {
 public:
  explicit SmallDisk(std::string path) : path_(std::move(path)) { fs::create_directory(path_); }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  /// False if this user may not mount.
  bool mount(const std::string& size) {
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    return mounted_;
  }
  void grow(const std::string& size) const {
    if (::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()) != 0)
      throw std::runtime_error(std::strerror(errno));
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

class DiskFull : public ::testing::TestWithParam<int> {
 protected:
  test::ChildResult train(const std::vector<std::string>& more) const {
    std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                   "train",
                                   "--device=cpu",
                                   "--dataset=synthetic",
                                   "--sequence=16",
                                   "--batch=1",
                                   "--from-scratch",
                                   "--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                                   "--ranks=" + std::to_string(GetParam())};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_child(words);
  }

  TemporaryFolder folder_;
};

TEST_P(DiskFull, WhileCheckpointingLeavesTheCheckpointBefore) {
  SmallDisk disk(folder_ / "disk");
  if (!disk.mount("700k"))
    GTEST_SKIP() << "a small disk cannot be mounted here: " << std::strerror(errno);  // a checkpoint is 529 kB
  const std::string checkpoint = "--checkpoint=" + (folder_ / "disk/checkpoints");
  const test::ChildResult full = train({"--steps=4", checkpoint, "--checkpoint-every=2", "--archive=" + (folder_ / "run.h5")});
  EXPECT_EQ(full.status, 1) << full.output;
  EXPECT_THAT(full.output, HasSubstr("step-00000004"));
  EXPECT_THAT(full.output, HasSubstr("No space left on device"));
  EXPECT_THAT(full.output, HasSubstr("bytes, "));  // what it needs and what is there
  EXPECT_EQ(ArchiveReader(folder_ / "run.h5").status(), "failed");
  EXPECT_THAT(ArchiveReader(folder_ / "run.h5").reason(), HasSubstr("No space left on device"));
  EXPECT_TRUE(fs::exists(folder_ / "disk/checkpoints/step-00000002/state.json"));
  for (const auto& entry : fs::directory_iterator(folder_ / "disk/checkpoints")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "step-00000002" || name == "lock") << name << " was left behind";
  }

  disk.grow("10m");
  const test::ChildResult resumed = train({"--steps=4", checkpoint, "--resume", "--export=" + (folder_ / "resumed")});
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("resumed after step 2"));
  ASSERT_EQ(train({"--steps=4", "--export=" + (folder_ / "whole")}).status, 0);
  EXPECT_EQ(read_whole(folder_ / "resumed/model.safetensors"), read_whole(folder_ / "whole/model.safetensors"));
}

TEST_P(DiskFull, WhileRecordingLeavesAReadableArchive) {
  SmallDisk disk(folder_ / "disk");
  if (!disk.mount("340k"))
    GTEST_SKIP() << "a small disk cannot be mounted here: "
                 << std::strerror(errno);  // space for 1,024 steps, with or without advice
  const test::ChildResult full = train({"--steps=100000", "--archive=" + (folder_ / "disk/run.h5")});
  EXPECT_EQ(full.status, 1) << full.output;
  EXPECT_THAT(full.output, HasSubstr("run.h5: No space left on device"));
  const ArchiveReader archive(folder_ / "disk/run.h5");
  EXPECT_EQ(archive.column("loss").size(), 1024U);
  EXPECT_EQ(archive.column("step").back(), 1024);
}

TEST_P(DiskFull, WhileExportingLeavesNoFile) {
  SmallDisk disk(folder_ / "disk");
  if (!disk.mount("100k"))
    GTEST_SKIP() << "a small disk cannot be mounted here: " << std::strerror(errno);  // the weights are 176 kB
  // One rank's weights are whole; where they are divided they go through files of the ranks' parts.
  for (const std::string strategy : {"ddp", "zero3-offload"}) {
    const test::ChildResult full = train({"--steps=1", "--strategy=" + strategy, "--export=" + (folder_ / "disk/model")});
    EXPECT_EQ(full.status, 1) << full.output;
    EXPECT_THAT(full.output, HasSubstr("No space left on device"));
    EXPECT_TRUE(fs::is_empty(folder_ / "disk")) << "something is left behind";
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DiskFull, ::testing::Values(1, 2), [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace consist
