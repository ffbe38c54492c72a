// Parts that `consist new` writes, built as a user builds them against the installation: they are listed, conform and train.
#include <gmock/gmock.h>

#include "launch/templates/part_template.h"
#include "tests/external/installed.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class NewPart : public test::Installed {
 protected:
  /// The exit status is asserted to be 2.
  static std::string refused(std::vector<std::string> words) {
    words.insert(words.begin(), {prefix_ + "/bin/consist", "new"});
    const test::ChildResult result = test::run_child(words);
    EXPECT_EQ(result.status, 2) << result.output;
    return result.output;
  }
};

// All in one project, so that they are compiled side by side.
TEST_F(NewPart, OfEachKindBuildsConformsAndTrains) {
  const fs::path folder = *folder_ / "parts";
  std::string project = "cmake_minimum_required(VERSION 3.22)\nproject(Parts LANGUAGES CXX)\nenable_testing()\n", expected;
  for (const launch::PartTemplate& part : launch::part_templates()) {
    const std::string kind(part.kind), name = "tidy-" + kind;
    EXPECT_THAT(consist({"new", kind, name, "--into", (folder / name).string()}), HasSubstr(kind + " '" + name + "' in "));
    project += "add_subdirectory(" + name + ")\n";
  }
  write_whole(folder / "CMakeLists.txt", project);
  const std::string build = folder / "build";
  test::run_outside({CMAKE_COMMAND, "-G", CMAKE_GENERATOR, "-S", folder.string(), "-B", build, "-DCMAKE_PREFIX_PATH=" + prefix_,
                     "-DCMAKE_CXX_COMPILER=" CXX_COMPILER, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
                     "-DCMAKE_CUDA_COMPILER="});
  test::run_outside({CMAKE_COMMAND, "--build", build, "--parallel", "2"}, std::chrono::seconds(280));
  const std::string plugins = build + "/lib/consist/plugins";
  const std::string listed = consist({"plugins", "--plugin", plugins});
  for (const launch::PartTemplate& part : launch::part_templates())
    EXPECT_THAT(listed, ::testing::ContainsRegex(std::string(part.plugin_kind) + " +tidy-" + std::string(part.kind) +
                                                 " +1\\.0\\.0 +yes"));
  // The suite of strategies trains many layouts, on which tests/conformance spends its time already.
  const std::string tested =
      test::run_outside({CMAKE_CTEST_COMMAND, "--test-dir", build, "-j", "2", "--output-on-failure", "-E", "tidy-strategy.check"},
                        std::chrono::seconds(120));
  EXPECT_THAT(tested,
              HasSubstr("100% tests passed, 0 tests failed out of " + std::to_string(2 * launch::part_templates().size() - 2)));
  EXPECT_THAT(consist({"check", plugins + "/strategy-tidy-strategy.so", "--skip", "*Losses*"}),
              HasSubstr("'tidy-strategy' conforms"));
}

TEST_F(NewPart, NamesThatArePartsOpsOrPresetsAreRefused) {
  EXPECT_THAT(refused({"optimizer", "ddp", "--into", *folder_ / "none"}),
              AllOf(HasSubstr("'ddp' is the name of a part already (strategy, "), HasSubstr("take another name")));
  EXPECT_THAT(refused({"op", "rms-norm", "--into", *folder_ / "none"}), HasSubstr("there is an op 'rms_norm' already"));
  EXPECT_THAT(refused({"model", "qwen3", "--into", *folder_ / "none"}),
              HasSubstr("the model 'qwen' has a preset 'qwen3-tiny' already"));
  EXPECT_THAT(refused({"loss", "next-token", "--into", *folder_ / "none"}), HasSubstr("'next-token' is the loss that models make"));
  EXPECT_FALSE(fs::exists(*folder_ / "none"));
}

}  // namespace
}  // namespace consist
