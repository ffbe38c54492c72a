// Files for --config, and the configuration that a run makes of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/cli/run_options.h"
#include "tests/temporary_folder.h"

namespace consist::test {

/// The plugins of this build.
inline PluginHost& host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

class ConfigFileTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_whole(folder_ / name, text);
    return folder_ / name;
  }
  RunConfig config_of(const std::string& path, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"--config", path});
    return make_config(parse_run(words), host());
  }
  std::string refusal_of(const std::string& path, const std::vector<std::string>& words = {}) const {
    try {
      config_of(path, words);
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 2000U);
      return error.what();
    }
    return "nothing";
  }
  std::string refusal(const std::string& toml) const { return refusal_of(file("run.toml", toml)); }
  const TemporaryFolder folder_;
};

}  // namespace consist::test
