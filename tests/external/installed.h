// Fixture of tests of parts from outside: the build installed into one folder, which was then moved to another, and examples
// built against the latter (install.sh).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist::test {

using Words = std::vector<std::string>;
inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Runs to the end in the root folder, with nothing in the environment that points at the build; fails the test unless it exits
/// with 0.
inline std::string run_outside(std::vector<std::string> words, std::chrono::seconds limit = std::chrono::seconds(120)) {
  words.insert(words.begin(), {"env", "-u", "CONSIST_PLUGIN_PATH", "-u", "LD_LIBRARY_PATH", "--chdir=/"});
  const ChildResult result = run_child(words, limit);
  EXPECT_EQ(result.status, 0) << result.output;
  return result.output;
}

/// One installation for all suites of the process, or of all processes: where ctest runs them, it has made one before
/// (CONSIST_INSTALLED; CMakeLists.txt).
class Installed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (folder_ != nullptr) return;
    folder_ = std::make_unique<TemporaryFolder>();
    const char* const made = std::getenv("CONSIST_INSTALLED");
    const bool is_made = made != nullptr && std::filesystem::exists(made);
    installed_ = is_made ? made : *folder_ / "installed";
    if (!is_made) {
      const ChildResult result = run_child({"bash", CONSIST_SOURCE_DIR "/tests/external/install.sh", CONSIST_BINARY_DIR, installed_,
                                            CMAKE_COMMAND, CMAKE_GENERATOR, CXX_COMPILER},
                                           std::chrono::seconds(300));
      ASSERT_EQ(result.status, 0) << result.output;
    }
    prefix_ = installed_ + "/moved";
  }

  /// Where the plugins of that folder of tests/external are.
  static std::string built(const std::string& example) {
    const std::string plugins =
        installed_ + (example == "ddp-plain" ? "/ddp-plain/lib/consist/plugins/" : "/examples/" + example + "/");
    EXPECT_TRUE(std::filesystem::exists(plugins)) << plugins;
    return plugins;
  }

  /// The text without the installation's folder, which may lie in that of the build.
  static std::string outside_of_installation(std::string text) {
    for (std::size_t at; (at = text.find(installed_)) != std::string::npos;) text.erase(at, installed_.size());
    return text;
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
  static inline std::string installed_, prefix_;
};

}  // namespace consist::test
