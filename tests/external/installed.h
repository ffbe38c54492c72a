// What tests of parts from outside share: the build installed into one folder, which was then moved to another, and projects
// built against the latter.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist::test {

/// Runs to the end in the root folder, with nothing in the environment that points at the build; fails the test unless it exits
/// with 0.
inline std::string run_outside(std::vector<std::string> words) {
  words.insert(words.begin(), {"env", "-u", "CONSIST_PLUGIN_PATH", "-u", "LD_LIBRARY_PATH", "--chdir=/"});
  const ChildResult result = run_child(words);
  EXPECT_EQ(result.status, 0) << result.output;
  return result.output;
}

/// One installation for all suites of the process.
class Installed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (folder_ != nullptr) return;
    folder_ = std::make_unique<TemporaryFolder>();
    run_outside({CMAKE_COMMAND, "--install", CONSIST_BINARY_DIR, "--prefix", *folder_ / "made"});
    prefix_ = *folder_ / "moved";
    std::filesystem::rename(*folder_ / "made", prefix_);
  }

  /// Builds the project of that folder of tests/external; returns where its plugins are.
  static std::string built(const std::string& project) {
    const std::string build = *folder_ / ("build-" + project), plugins = build + "/lib/consist/plugins/";
    if (std::filesystem::exists(plugins)) return plugins;
    run_outside({CMAKE_COMMAND, "-G", CMAKE_GENERATOR, "-S", CONSIST_SOURCE_DIR "/tests/external/" + project, "-B", build,
                 "-DCMAKE_PREFIX_PATH=" + prefix_, "-DCMAKE_CXX_COMPILER=" CXX_COMPILER});
    run_outside({CMAKE_COMMAND, "--build", build});
    return plugins;
  }

  static std::string consist(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), prefix_ + "/bin/consist");
    return run_outside(std::move(arguments));
  }

  /// A folder whose config.json is that of a small model of `architecture` and has `more`.
  static std::string model_folder(const std::string& architecture, const std::string& type, const std::string& more) {
    static int made = 0;
    const std::string folder = *folder_ / (type + std::to_string(++made));
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/config.json")
        << R"({"architectures": [")" << architecture << R"("], "model_type": ")" << type
        << R"(", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": false)"
        << more << "}";
    return folder;
  }

  /// Losses of a run on the CPU with these words.
  static std::vector<double> losses(std::vector<std::string> words) {
    const std::string archive = *folder_ / "losses.h5";
    words.insert(words.begin(), {"train", "--device", "cpu", "--archive", archive, "--overwrite"});
    consist(words);
    return ArchiveReader(archive).column("loss");
  }
  static void expect_same(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 1e-5) << "loss of step " << s + 1;
    EXPECT_LT(found.back(), found.front()) << "nothing was learnt, so that equal losses would say little";
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::string prefix_;
};

}  // namespace consist::test
