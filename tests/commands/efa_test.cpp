// Asking for EFA where there is none: what is missing, soon and without starting anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/child_process.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds soon{5};

class WithoutEfa : public ::testing::Test {
 protected:
  void SetUp() override {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
      if (std::filesystem::read_symlink(entry.path() / "device/driver", error).filename() == "efa")
        GTEST_SKIP() << "this machine has EFA";
    }
  }
  static test::ChildResult run(std::vector<std::string> words) {
    words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
    return test::run_child(words, soon);
  }
};

TEST_F(WithoutEfa, AskingForItEndsSoonWithTheListOfWhatIsMissing) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"bench", "collectives", "--transport=efa", "--device=cpu"},
           {"train", "--transport=efa", "--device=cpu", "--ranks=2", "--model=llama-tiny", "--dataset=synthetic",
            "--from-scratch", "--steps=1", "--batch=1", "--sequence=8"}}) {
    const test::ChildResult result = run(words);
    EXPECT_EQ(result.status, 1) << result.output;
    for (const char* part :
         {"transport 'efa' cannot serve device 'cpu'", "EFA device: there is none in /sys/class/infiniband", "provider: "})
      EXPECT_THAT(result.output, HasSubstr(part));
  }
}

TEST_F(WithoutEfa, ThePluginSaysWhatIsMissingWithoutARun) {
  const test::ChildResult result = run({"plugins", "efa"});
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* part : {"available: no", "EFA device: ", "provider: ", "NCCL plugin: ", "--efa.provider"})
    EXPECT_THAT(result.output, HasSubstr(part));
}

}  // namespace
}  // namespace consist
