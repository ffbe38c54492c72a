// A file of another trainer as --from, and what a run makes of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/schedule.h"
#include "core/plan/parts.h"
#include "launch/run_options.h"
#include "tests/temporary_folder.h"

namespace consist::test {

class TrainerFileTest : public ::testing::Test {
 protected:
  RunConfig config_of(const std::string& file, std::vector<std::string> words = {}) {
    const std::string path = folder_ / "file";
    write_whole(path, file);
    words.push_back("--from=" + path);
    return make_config(parse_run(words), host_);
  }
  void expect_refused(const std::string& file, const std::string& message, const std::vector<std::string>& words = {}) {
    try {
      config_of(file, words);
      FAIL() << file.substr(0, 300) << " is taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
      EXPECT_LT(std::string(error.what()).size(), 2000U);
    }
  }
  /// Every one of `keys` stands in a note.
  static void expect_notes(const RunConfig& config, const std::vector<std::string>& keys) {
    std::string notes;
    for (const std::string& note : config.notes) notes += note + "\n";
    for (const std::string& key : keys) EXPECT_THAT(notes, ::testing::HasSubstr(key)) << "passed over in silence";
  }
  std::string option(const RunConfig& config, const std::string& plugin, const std::string& name) {
    const auto owner = config.plugin_options.find(plugin);
    return owner == config.plugin_options.end() || !owner->second.contains(name) ? "(none)" : owner->second.at(name);
  }
  double rate(const RunConfig& config, std::int64_t done) {
    const auto options = config.plugin_options.find(config.schedule);
    return host_
        .make<Schedule>("schedule", config.schedule,
                        options == config.plugin_options.end() ? std::map<std::string, std::string>{} : options->second)
        ->rate(done, config.steps, config.learning_rate);
  }
  ModelSizes sizes(const RunConfig& config) { return model_sizes(config, host_); }

  TemporaryFolder folder_;
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

}  // namespace consist::test
