// Archives for tests of the report: of short runs, and made from one with something changed.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/commands/tiny_training.h"
#include "tests/report/browser.h"
#include "tests/temporary_folder.h"

namespace consist::test {

inline constexpr const char* no_chromium = "no Chromium: install tests/packages.txt, or set CONSIST_TEST_CHROMIUM";

inline ChildResult consist_says(std::vector<std::string> words) {
  words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
  return run_child(words, std::chrono::seconds(280));
}

/// A run of this version: two ranks, a few steps. It is run once for all cases of this process, each of which gets a copy.
inline std::string new_run(const TemporaryFolder& folder) {
  static const TemporaryFolder kept;
  static const ChildResult result = train_tiny({"--strategy", "ddp", "--steps", "6", "--archive", kept / "new.h5"});
  EXPECT_EQ(result.status, 0) << result.output;
  std::filesystem::copy_file(kept / "new.h5", folder / "new.h5");
  return folder / "new.h5";
}

/// The data that a report's page holds.
inline nlohmann::json data_of(const std::string& page) {
  const std::string text = read_whole(page), open = R"(<script type="application/json" id="data">)";
  const std::size_t begin = text.find(open) + open.size();
  return nlohmann::json::parse(text.substr(begin, text.find("</script>", begin) - begin));
}

/// The archive of a run of version 1: llama-tiny in bf16 on two ranks, six steps, made by `consist train --model llama-tiny
/// --dataset synthetic --sequence 32 --batch 1 --ranks 2 --steps 6 --precision bf16 --archive v1b.h5` with the program of commit
/// d876eaa.
inline std::string version_1(const TemporaryFolder& folder) {
  const std::string path = folder / "old.h5";
  const ChildResult unpacked =
      run_child({"sh", "-c", "gzip -dc '" CONSIST_SOURCE_DIR "/tests/report/version1.h5.gz' > '" + path + "'"});
  EXPECT_EQ(unpacked.status, 0) << unpacked.output;
  return path;
}

class ReportInABrowser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (chromium().empty()) GTEST_SKIP() << no_chromium;
  }
};

/// Contents of an archive that is made from a real one.
struct Made {
  nlohmann::json config, topology, timeline;
  std::string programs;  ///< empty: none, as in archives of version 2 from before there were any
  double seconds = 0.1;  ///< of a step
  double loss = 7;       ///< of the first step
  double tokens = 1024;  ///< of a step
  double others = 0;     ///< share of the processors' time that other processes took
  std::vector<std::pair<std::string, std::string>> events = {};  ///< kind and text
  std::vector<double> evaluations = {};                          ///< losses, one after each second step
  std::vector<OwnMetricValue> metrics = {};                      ///< of every step
  std::string loss_unit = "nat/token";
};

inline Made made_from(const ArchiveReader& real) {
  return {nlohmann::json::parse(real.text("/config")), nlohmann::json::parse(real.text("/topology")),
          nlohmann::json::parse(real.packed_text("/timeline")), real.packed_text("/programs")};
}

/// Other times of its parts, in seconds: of each class of ranks, whose step is their sum. Parts that are not named take none.
inline void set_parts(Made& made, const std::map<std::string, double>& parts) {
  made.seconds = 0;
  for (const auto& [name, seconds] : parts) made.seconds += seconds;
  for (nlohmann::json& of_class : made.timeline.at("classes")) {
    of_class["step_seconds"] = made.seconds;
    for (auto& [name, seconds] : of_class.at("parts").items()) {
      if (name != "exposed_communication") seconds = parts.contains(name) ? parts.at(name) : 0.0;
    }
    for (auto& [axis, seconds] : of_class.at("parts").at("exposed_communication").items()) seconds = 0.0;
  }
}

/// A row of ten steps.
inline std::string write_made(const std::string& path, const ArchiveReader& real, const Made& made) {
  Archive archive(path, false);
  archive.text("/config", made.config.dump());
  archive.text("/topology", made.topology.dump());
  for (const char* text : {"/environment", "/program", "/start", "/comm"}) archive.text(text, real.text(text));
  nlohmann::json result = nlohmann::json::parse(real.text("/result"));
  result["processors"] = {{"own", 1 - made.others}, {"others", made.others}, {"stolen", 0.0}, {"idle", 0.0}};
  archive.text("/result", result.dump());
  std::vector<Column> columns{{"step", "1", "step"},
                              {"loss", made.loss_unit, "loss"},
                              {"seconds", "s", "s"},
                              {"tokens", "1", "t"},
                              {"grad_norm", "1", "n"},
                              {"learning_rate", "1", "r"},
                              {"tokens_per_second", "1/s", "t"}};
  for (const OwnMetricValue& metric : made.metrics) columns.push_back({metric.name, "1", "of the loss"});
  archive.define_steps(columns);
  for (int step = 1; step <= 10; ++step) {
    const double seconds = made.seconds + 0.001 * (step % 7);
    std::vector<double> row{double(step), made.loss - 0.01 * step, seconds, made.tokens, 0.5 + 0.1 * step,
                            1e-4 * step,  made.tokens / seconds};
    for (const OwnMetricValue& metric : made.metrics) row.push_back(metric.value);
    archive.append(row);
  }
  for (const auto& [kind, text] : made.events) archive.event(1.7e9, kind, text);
  for (std::size_t n = 0; n < made.evaluations.size(); ++n)
    archive.evaluation({.step = static_cast<std::int64_t>(2 * (n + 1)),
                        .loss = made.evaluations[n],
                        .sequences = 8,
                        .seconds = 0.1,
                        .time = 1.7e9});
  archive.packed_text("/timeline", made.timeline.dump());
  if (!made.programs.empty()) archive.packed_text("/programs", made.programs);
  archive.finish("finished", "");
  return path;
}

}  // namespace consist::test
