// The Python lines of docs/archive.md, run as they stand there, read what Consist writes.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/archive/archive.h"
#include "core/archive/comparison.h"
#include "core/archive/own_metric_values.h"
#include "core/archive/reader.h"
#include "core/record/recorder.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

/// The `index`-th block of Python in the page.
std::string example(int index) {
  const std::string page = read_whole(std::string(CONSIST_SOURCE_DIR) + "/docs/archive.md");
  const std::string open = "```python\n";
  std::size_t at = 0;
  for (int i = 0; i <= index; ++i) {
    at = page.find(open, at);
    if (at == std::string::npos) throw std::runtime_error("docs/archive.md has no Python block " + std::to_string(index));
    at += open.size();
  }
  return page.substr(at, page.find("```", at) - at);
}

std::string python() {
  if (const char* set = std::getenv("CONSIST_TEST_PYTHON"); set != nullptr && *set != '\0') return set;
  return std::string(CONSIST_BINARY_DIR) + "/venv/bin/python";
}

/// Runs a script in the folder; its output, errors included.
std::string run(const TemporaryFolder& folder, const std::string& script) {
  write_whole(folder / "example.py", script);
  const std::string command = "cd '" + folder.path().string() + "' && '" + python() + "' example.py 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  const int status = ::pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
  return output;
}

class ArchiveDocumentation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(python())) {
      GTEST_SKIP() << "no Python at " << python() << ": make one with tests/requirements.txt, or set CONSIST_TEST_PYTHON";
    }
  }
};

TEST_F(ArchiveDocumentation, ARunInPandas) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "run.h5", false);
    archive.text("/config", R"({"model":"größe"})");
    archive.define_steps({{"step", "1", "step"}, {"loss", "nat/token", "mean loss"}, {"seconds", "s", "wall time"}});
    for (int step = 1; step <= 1500; ++step)
      archive.append(std::vector<double>{double(step), 1.0 / step, step == 3 ? std::nan("") : 0.25});
    archive.event(7, "checkpoint", "1 MB");
    archive.evaluation({.step = 1000, .loss = 0.5, .sequences = 64, .seconds = 0.25, .time = 7});
    archive.finish("stopped", "asked to, at größe");
  }
  const std::string output = run(folder, example(0) + R"(
import json
assert len(steps) == 1500 and steps.loss[1500] == 1 / 1500 and steps.seconds.isna().sum() == 1, steps
assert steps.index.dtype == "int64" and steps.loss.dtype == "float64"
assert run["steps/loss"].attrs["units"] == "nat/token" and run["steps/loss"].attrs["long_name"] == "mean loss"
assert json.loads(run["config"].asstr()[()]) == {"model": "größe"}
assert run.attrs["status"].decode() == "stopped" and run.attrs["reason"].decode() == "asked to, at größe"
assert run.attrs["consist_archive_version"] == 2
assert run["events/kind"].asstr()[0] == "checkpoint" and run["events/time"][0] == 7
assert list(evaluations.loss) == [0.5] and list(evaluations.step) == [1000] and list(evaluations.sequences) == [64]
assert run["evaluations/loss"].attrs["units"] == "nat/token"
assert run["steps/loss"].chunks == (1024,) and run["steps/loss"].compression is None
print("read")
)");
  EXPECT_EQ(output, "read\n");
}

TEST_F(ArchiveDocumentation, ATimelineInPandas) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "run.h5", false);
    archive.define_steps({{"step", "1", "step"}});
    archive.packed_text("/timeline", R"({"classes": [{"instructions": {"op": ["linear", "größe"], "instruction": [7, 8],
                                        "seconds": [0.5, 0.25]}}]})");
    archive.packed_text("/programs",
                        R"({"classes": [{"text": "program\ninput %0\n7 compute %1 = linear(%0)\n8 compute größe"}]})");
    archive.finish("finished", "");
  }
  EXPECT_EQ(run(folder, example(1) + R"(
print(instructions.groupby("op").seconds.sum().sort_values().to_dict())
)"),
            "{'größe': 0.25, 'linear': 0.5}\n");
  EXPECT_EQ(run(folder, example(1) + example(2) + "print(lines)\n"),
            "8 compute größe\n7 compute %1 = linear(%0)\n"
            "{7: '7 compute %1 = linear(%0)', 8: '8 compute größe'}\n");
}

// The page's statements about files of killed runs.
TEST_F(ArchiveDocumentation, ATornRowInPandas) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "run.h5", false);
    archive.define_steps({{"step", "1", "step"}, {"loss", "nat/token", "mean loss"}});
    for (int step = 1; step <= 5; ++step) archive.append(std::vector<double>{double(step), 1.0 / step});
  }
  std::string torn = example(0);
  const std::size_t at = torn.find("column[:]");
  ASSERT_NE(at, std::string::npos);
  torn.replace(at, 9, "pd.Series(column[:])");
  torn.insert(torn.find(".set_index"), ".dropna(subset=\"step\")");
  const std::string output = run(folder, R"(import h5py
with h5py.File("run.h5", "r+") as file:
    file["steps/loss"].resize((6,))
)" + torn + "print(len(steps), steps.loss.iloc[-1])\n");
  EXPECT_EQ(output, "5 0.2\n");
}

TEST_F(ArchiveDocumentation, BalanceOfExperts) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "run.h5", false);
    archive.define_experts({0, 2}, 4);
    archive.define_steps({{"step", "1", "step"}});
    for (int step = 1; step <= 40; ++step) archive.experts({.step = 3 * step, .choices = {1, 1, 1, 5, 2, step, 2, 2}});
  }
  const std::string output = run(folder, "import h5py, pandas as pd\nrun = h5py.File(\"run.h5\")\n" + example(4) + R"(
assert choices.shape == (40, 2, 4) and choices.dtype == "int32", choices
assert list(load.columns) == [0, 2] and list(load.index) == list(range(3, 121, 3)), load
assert (load[0] == 2.5).all() and load.loc[6, 2] == 1 and load.loc[120, 2] == 40 / 11.5, load
assert run["experts/choices"].attrs["units"] == "1"
print("read")
)");
  EXPECT_EQ(output, "read\n");
}

TEST_F(ArchiveDocumentation, AComparisonInPandas) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "a.h5", false);
    archive.define_steps({{"step", "1", "step"}, {"loss", "1", "loss"}});
    archive.append(std::vector<double>{1, 2.5});
  }
  write_comparison(folder / "comparison.h5", {{"outcome", ""}, {"final_loss", "nat/token"}},
                   {{"a fp32", folder / "a.h5", {"finished", 2.5}}, {"b", "", {"unavailable: kein Gerät", std::nan("")}}});
  const std::string output = run(folder, "import h5py, pandas as pd\n" + example(3) + R"(
assert list(table.columns) == ["run", "outcome", "final_loss"], table
assert list(table.run) == ["a fp32", "b"] and table.outcome[1] == "unavailable: kein Gerät"
assert table.final_loss[0] == 2.5 and table.final_loss.isna()[1]
with h5py.File("comparison.h5") as comparison:
    assert comparison["runs/a fp32/steps/loss"][0] == 2.5 and list(comparison["runs"]) == ["a fp32"]
print("read")
)");
  EXPECT_EQ(output, "read\n");
}

std::string page() {
  return read_whole(std::string(CONSIST_SOURCE_DIR) + "/docs/archive.md");
}

TEST(ArchivePage, NamesEveryColumnAndEveryKeyOfTheResult) {
  const TemporaryFolder folder;
  RunConfig config;
  config.archive = folder / "run.h5";
  Recorder recorder(config, 0);
  const DeviceReading sensor{"gpu_use", "1", 0.5};
  const Router router{.layer = 0, .experts = 2};
  recorder.describe("{}", "{}", "{}", {&sensor, 1}, true, {&router, 1});
  recorder.evaluation({.step = 1, .loss = 2, .sequences = 3, .seconds = 4});
  const RunResult result;
  recorder.finish("finished", "", &result);
  const ArchiveReader archive(folder / "run.h5");
  EXPECT_GT(archive.columns().size(), 8U);
  for (const std::string& column : archive.columns())
    EXPECT_NE(page().find("`" + column + "`"), std::string::npos) << column << " is not in docs/archive.md";
  const auto keys = nlohmann::json::parse(archive.text("/result"));
  EXPECT_GT(keys.size(), 20U);
  for (const auto& [key, value] : keys.items())
    EXPECT_NE(page().find("`" + key + "`"), std::string::npos) << key << " is not in docs/archive.md";
}

/// A run of 2,500 steps keeps the choices of every second one, also where it goes on after the third.
TEST(ArchivedExperts, ARunThatGoesOnKeepsThem) {
  const TemporaryFolder folder;
  RunConfig config;
  config.archive = folder / "run.h5";
  config.steps = 2500;
  const Router router{.layer = 1, .experts = 2};
  const auto record = [&](std::int64_t done, std::int64_t last) {
    Recorder recorder(config, done);
    recorder.describe("{}", "{}", "{}", {}, false, {&router, 1});
    for (std::int64_t step = done + 1; step <= last; ++step) {
      StepReport report;
      report.step = step;
      report.seconds = 1;
      report.expert_choices = {static_cast<float>(10 * done + step), 1};
      report.expert_load = 2;
      recorder.step(report, {});
    }
    recorder.finish("stopped", "", nullptr);
  };
  record(0, 5);
  config.resume = true;
  record(3, 6);
  const ArchiveReader archive(config.archive);
  std::vector<std::int64_t> steps;
  std::vector<std::int32_t> choices;
  for (const ArchivedChoices& row : archive.experts()) {
    steps.push_back(row.step);
    choices.insert(choices.end(), row.choices.begin(), row.choices.end());
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_EQ(choices, (std::vector<std::int32_t>{1, 1, 3, 1, 35, 1}));
  EXPECT_EQ(archive.column("expert_load"), std::vector<double>(6, 2));
}

/// Numbers that a model or a loss reports of its own, also where it goes on from before it reported one of them.
TEST(ArchivedMetrics, ARunThatGoesOnKeepsThem) {
  const TemporaryFolder folder;
  RunConfig config;
  config.archive = folder / "run.h5";
  config.steps = 4;
  const auto record = [&](std::int64_t done, const std::vector<OwnMetric>& metrics) {
    Recorder recorder(config, done);
    recorder.describe("{}", "{}", "{}", {}, false, {}, metrics);
    for (std::int64_t step = done + 1; step <= done + 2; ++step) {
      StepReport report;
      report.step = step;
      report.seconds = 1;
      for (const OwnMetric& metric : metrics) report.metrics.push_back({metric.name, static_cast<double>(10 * done + step)});
      recorder.step(report, {});
      recorder.evaluation({.step = step, .loss = 1, .sequences = 1, .metrics = report.metrics});
    }
    recorder.finish("stopped", "", nullptr);
  };
  const OwnMetric accuracy{"accuracy", "1", "share of correct pairs"}, margin{"margin", "nat", ""};
  record(0, {accuracy});
  config.resume = true;
  record(1, {accuracy, margin});
  const ArchiveReader archive(config.archive);
  EXPECT_EQ(archive.column("accuracy"), (std::vector<double>{1, 12, 13}));
  EXPECT_EQ(archive.unit("margin"), "nat");
  const std::vector<double> margins = archive.column("margin");
  EXPECT_TRUE(std::isnan(margins.at(0)));
  EXPECT_EQ(margins.at(2), 13);
  const std::vector<ArchivedEvaluation> evaluations = archive.evaluations();
  ASSERT_EQ(evaluations.size(), 3U);
  const auto value = [&](std::size_t row, const std::string& name) {
    const auto found = std::ranges::find(evaluations[row].metrics, name, &OwnMetricValue::name);
    return found == evaluations[row].metrics.end() ? -1 : found->value;
  };
  EXPECT_EQ(value(0, "accuracy"), 1);
  EXPECT_TRUE(std::isnan(value(0, "margin")));
  EXPECT_EQ(value(2, "accuracy"), 13);
  EXPECT_EQ(value(2, "margin"), 13);
  const std::vector<OwnMetricValue> last = final_metrics(archive);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].name, "accuracy");
  EXPECT_EQ(last[1].value, 13);
}

TEST(ArchivedLosses, HaveTheUnitThatTheLossSays) {
  const TemporaryFolder folder;
  RunConfig config;
  config.archive = folder / "run.h5";
  Recorder recorder(config, 0);
  recorder.describe("{}", "{}", "{}", {}, false, {}, {}, "nat/pair");
  recorder.finish("stopped", "", nullptr);
  const ArchiveReader run(config.archive);
  EXPECT_EQ(run.unit("loss"), "nat/pair");
  EXPECT_EQ(run.loss_unit(), "nat/pair");
  const auto unit_of_evaluation = [&](const char* name, const std::function<void(Archive&)>& define) {
    Archive archive(folder / name, false);
    define(archive);
    archive.evaluation({.step = 1, .loss = 0.5, .sequences = 2, .seconds = 1, .time = 7});
    archive.finish("finished", "");
    const ArchiveReader reader(folder / name);
    EXPECT_EQ(reader.evaluations().at(0).loss, 0.5);
    return reader.loss_unit();
  };
  EXPECT_EQ(unit_of_evaluation("pairs.h5", [](Archive& a) { a.define_evaluations({}, "nat/pair"); }), "nat/pair");
  EXPECT_EQ(unit_of_evaluation("tokens.h5", [](Archive&) {}), "nat/token");
  const auto no_unit = [](Archive& a) { a.define_steps({{"step", "1", ""}, {"loss", "", ""}}); };
  EXPECT_EQ(unit_of_evaluation("old.h5", no_unit), "nat/token");
}

TEST(ArchivePage, NamesEverySensorAndVersionOfAGpu) {
  const auto expect_names = [](const std::string& file, const std::string& open, const std::string& prefix, std::size_t least) {
    const std::string source = read_whole(std::string(CONSIST_SOURCE_DIR) + file);
    std::size_t count = 0;
    for (std::size_t at = source.find(open); at != std::string::npos; at = source.find(open, at + 1)) {
      const std::size_t begin = at + open.size();
      const std::string name = prefix + source.substr(begin, source.find('"', begin) - begin);
      EXPECT_NE(page().find("`" + name + "`"), std::string::npos) << name << " of " << file << " is not in docs/archive.md";
      ++count;
    }
    EXPECT_GE(count, least) << file << " is written otherwise than this test expects";
  };
  expect_names("/plugins/devices/cuda/sensors.cpp", "add(\"", "device_", 9);
  expect_names("/plugins/devices/cuda/device.cpp", "found[\"", "", 3);
  for (const char* name : {"device_nvlink_sent", "device_nvlink_received", "cudnn", "cublaslt", "nccl", "onednn"})
    EXPECT_NE(page().find("`" + std::string(name) + "`"), std::string::npos) << name;
}

}  // namespace
}  // namespace consist
