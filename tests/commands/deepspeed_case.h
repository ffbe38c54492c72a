// A DeepSpeed JSON and what a run makes of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/strategy.h"
#include "launch/run_options.h"
#include "tests/temporary_folder.h"

namespace consist::test {

class DeepspeedTest : public ::testing::Test {
 protected:
  RunConfig config_of(const std::string& path, std::vector<std::string> words) {
    words.insert(words.begin(), {"--model=llama-tiny", "--deepspeed-config=" + path});
    return make_config(parse_run(words), host_);
  }
  RunConfig config_of_text(const std::string& file, const std::vector<std::string>& words = {}) {
    const std::string path = folder_ / "ds.json";
    write_whole(path, file);
    return config_of(path, words);
  }
  RunConfig config_of(const nlohmann::json& file, const std::vector<std::string>& words = {}) {
    return config_of_text(file.dump(), words);
  }
  void expect_text_refused(const std::string& file, const std::string& message, const std::vector<std::string>& words = {}) {
    try {
      config_of_text(file, words);
      FAIL() << file.substr(0, 200) << " is taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
      EXPECT_LT(std::string(error.what()).size(), 2000U);
    }
  }
  void expect_refused(const nlohmann::json& file, const std::string& message, const std::vector<std::string>& words = {}) {
    expect_text_refused(file.dump(), message, words);
  }

  TemporaryFolder folder_;
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

}  // namespace consist::test
