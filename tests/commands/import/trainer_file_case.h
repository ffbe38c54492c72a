// A file of another trainer as --from, and what a run makes of it.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "consist/schedule.h"
#include "core/plan/found_model.h"
#include "core/plan/parts.h"
#include "tests/commands/import/foreign_file_case.h"

namespace consist::test {

class TrainerFileTest : public ForeignFileTest {
 protected:
  RunConfig config_of(const std::string& file, std::vector<std::string> words = {}) {
    words.push_back("--from=" + written(file));
    return config_of_words(words);
  }
  void expect_refused(const std::string& file, const std::string& message, const std::vector<std::string>& words = {}) {
    expect_refused_by([&] { config_of(file, words); }, file, message);
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
};

}  // namespace consist::test
