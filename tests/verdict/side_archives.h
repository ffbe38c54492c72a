// Archives of runs that were never made, from one that was: with other times, losses and conditions.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist::test {

/// A run of `steps` steps; what is not set is that of the real run.
struct SideArchive {
  double seconds = 0.1;  ///< of a step, scaled by `noise` (a fraction)
  double noise = 0.01;
  double loss = 7;     ///< falls by 0.01 a step
  double tokens = 64;  ///< of a step
  double began = 0;    ///< seconds since the epoch; 0: not known
  double others = 0;   ///< share of the processors' time that other processes took
  double peak_bytes = 1e6;
  double power = 0;      ///< W; 0: no such sensor
  double clock = 0;      ///< Hz; 0: no such sensor
  double load = 0;       ///< of the most chosen expert; 0: no experts
  double attention = 0;  ///< seconds that attention takes more than in the real run's timeline
  int steps = 40;
  int number = 0;  ///< of the noise
  std::string status = "finished", loss_unit = {};
  std::vector<std::pair<std::string, nlohmann::json>> config = {}, environment = {};
};

inline nlohmann::json changed(const ArchiveReader& real, const char* text,
                              const std::vector<std::pair<std::string, nlohmann::json>>& changes) {
  nlohmann::json object = nlohmann::json::parse(real.text(text));
  for (const auto& [key, value] : changes) object[nlohmann::json::json_pointer(key)] = value;
  return object;
}

inline std::string result_of(const ArchiveReader& real, const SideArchive& made, double seconds) {
  nlohmann::json result = nlohmann::json::parse(real.text("/result"));
  result["measured_peak_bytes"] = made.peak_bytes;
  result["start_seconds"] = 0;
  result["ended"] = made.began > 0 ? nlohmann::json(made.began + seconds) : nlohmann::json();
  result["processors"] = {{"own", 1 - made.others}, {"others", made.others}, {"stolen", 0.0}, {"idle", 0.0}};
  return result.dump();
}

inline std::string timeline_of(const ArchiveReader& real, const SideArchive& made) {
  nlohmann::json timeline = nlohmann::json::parse(real.packed_text("/timeline"));
  for (nlohmann::json& of_class : timeline.at("classes")) {
    of_class["step_seconds"] = of_class["step_seconds"].get<double>() + made.attention;
    of_class["parts"]["attention"] = of_class["parts"]["attention"].get<double>() + made.attention;
  }
  return timeline.dump();
}

inline std::string write_side(const std::string& path, const ArchiveReader& real, const SideArchive& made) {
  Archive archive(path, true);
  archive.text("/config", changed(real, "/config", made.config).dump());
  archive.text("/environment", changed(real, "/environment", made.environment).dump());
  for (const char* text : {"/topology", "/program", "/start", "/comm"}) archive.text(text, real.text(text));
  std::vector<Column> columns{{"step", "1", ""}, {"loss", made.loss_unit, ""}, {"seconds", "s", ""}, {"tokens", "1", ""}};
  for (const auto& [name, value] :
       {std::pair{"device_power", made.power}, {"device_sm_clock", made.clock}, {"expert_load", made.load}}) {
    if (value > 0) columns.push_back({name, "", ""});
  }
  archive.define_steps(columns);
  std::mt19937_64 random(static_cast<std::uint64_t>(made.number) + 1);
  std::normal_distribution<double> normal;
  const double offset = made.noise * normal(random);
  double sum = 0;
  for (int step = 1; step <= made.steps; ++step) {
    const double seconds = made.seconds * std::exp(offset + made.noise * normal(random));
    sum += seconds;
    std::vector<double> row{double(step), made.loss - 0.01 * step, seconds, made.tokens};
    for (const double value : {made.power, made.clock, made.load}) {
      if (value > 0) row.push_back(value);
    }
    archive.append(row);
  }
  archive.text("/result", result_of(real, made, sum));
  archive.packed_text("/timeline", timeline_of(real, made));
  archive.finish(made.status, made.status == "finished" ? "" : "as it was told to");
  return path;
}

/// One real run of llama-tiny on two ranks, from which archives are made.
class Sides : public ::testing::Test {
 protected:
  void SetUp() override {
    const ChildResult result =
        train_tiny({"--strategy", "ddp", "--device", "cpu", "--steps", "6", "--archive", folder_ / "real.h5"});
    ASSERT_EQ(result.status, 0) << result.output;
    real_ = std::make_unique<ArchiveReader>(folder_ / "real.h5");
  }

  /// `runs` archives, joined by commas. `first`: the number of the first start; starts of a side are two apart.
  std::string side(const std::string& name, int runs, SideArchive made, int first) {
    std::string names;
    for (int i = 0; i < runs; ++i) {
      made.number = first + 2 * i;
      made.began = 1.7e9 + 100.0 * made.number;
      names += (i == 0 ? "" : ",") + write_side(folder_ / (name + std::to_string(i) + ".h5"), *real_, made);
    }
    return names;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ArchiveReader> real_;
};

}  // namespace consist::test
