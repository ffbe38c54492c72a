// A file of another trainer, and what a run makes of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "launch/cli/run_options.h"
#include "tests/temporary_folder.h"

namespace consist::test {

class ForeignFileTest : public ::testing::Test {
 protected:
  /// The path of a file of this content and name.
  std::string written(const std::string& content, const char* name = "file") {
    const std::string path = folder_ / name;
    write_whole(path, content);
    return path;
  }
  /// Its notes have a line for each key.
  RunConfig config_of_words(std::vector<std::string> words) {
    words.emplace_back("--from-notes");
    return make_config(parse_run(words), host_);
  }
  /// `read` throws an Error that says `message`, in a text that people can read; `file`, for who looks at the failure.
  static void expect_refused_by(const std::function<void()>& read, const std::string& file, const std::string& message) {
    try {
      read();
      FAIL() << file.substr(0, 300) << " is taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
      EXPECT_LT(std::string(error.what()).size(), 2000U);
    }
  }

  TemporaryFolder folder_;
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

}  // namespace consist::test
