// Made-up measurements with one fault at a time: what is slow is named, with its cost in a step and its remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "launch/doctor/step_cost.h"
#include "tests/doctor/stand_in_figures.h"

namespace consist::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const MeasuredCheck& check_of(const std::vector<MeasuredCheck>& checks, const std::string& name) {
  return *std::find_if(checks.begin(), checks.end(), [&](const MeasuredCheck& check) { return check.result.name == name; });
}

std::set<std::string> complaints_of(const std::vector<MeasuredCheck>& checks) {
  std::set<std::string> names;
  for (const MeasuredCheck& check : checks) {
    const Status status = check.result.finding.status;
    if (status != Status::ok && status != Status::not_applicable) names.insert(check.result.name);
    EXPECT_EQ(status == Status::wrong || status == Status::warning, !check.result.finding.remedy.empty()) << check.result.name;
  }
  return names;
}

TEST(DoctorMeasured, FindsNothingOnAMachineThatIsWell) {
  for (const int hosts : {1, 3}) {
    const std::vector<MeasuredCheck> checks = measured_checks(figures_of(hosts));
    EXPECT_TRUE(complaints_of(checks).empty());
    EXPECT_EQ(check_of(checks, "network-links").result.finding.status, hosts > 1 ? Status::ok : Status::not_applicable);
    EXPECT_TRUE(check_of(checks, "devices-alike").slow.empty());
  }
}

TEST(DoctorMeasured, NamesTheSlowDeviceAmongItsEquals) {
  launch::ShortFigures figures = figures_of(2);
  slow_down(figures, 11, 1.12);
  const std::vector<MeasuredCheck> checks = measured_checks(figures);
  EXPECT_EQ(complaints_of(checks), std::set<std::string>{"devices-alike"});
  const MeasuredCheck& check = check_of(checks, "devices-alike");
  EXPECT_THAT(check.result.finding.found, StartsWith("rank 11 (node02) is 12% slower than its 15 equals"));
  EXPECT_THAT(check.result.finding.found, HasSubstr("its clock is 1.57 GHz, theirs 1.75 GHz"));
  EXPECT_THAT(check.result.finding.remedy, HasSubstr("nvidia-smi -q -d PERFORMANCE"));
  EXPECT_EQ(check.slow_nodes, std::set<int>{1});
  EXPECT_NEAR(check.with->rank_skew.value, 0.12, 0.005);
  EXPECT_LT(check.without->rank_skew.value, 0.005);
}

TEST(DoctorMeasured, NamesTheSlowerOfTwoDevices) {
  launch::ShortFigures figures = figures_of(1);
  figures.ranks.resize(2);
  slow_down(figures, 0, 1.2);
  EXPECT_EQ(check_of(measured_checks(figures), "devices-alike").slow, "rank 0 (node01)");
}

TEST(DoctorMeasured, ComparesAllDevicesWithTheirFile) {
  launch::ShortFigures figures = figures_of(1);
  for (launch::RankFigures& rank : figures.ranks) rank.products_time *= 1.25;
  const std::vector<MeasuredCheck> checks = measured_checks(figures);
  EXPECT_EQ(complaints_of(checks), std::set<std::string>{"device-products"});
  const MeasuredCheck& check = check_of(checks, "device-products");
  EXPECT_THAT(check.result.finding.found, HasSubstr("1.25 times as long as by h100"));
  EXPECT_NEAR(check.with->device.peak_bf16.value, figures.base.device.peak_bf16.value / 1.25, 1e12);
}

TEST(DoctorMeasured, SaysNothingBesideTheFileOfAnotherDevice) {
  launch::ShortFigures figures = figures_of(1);
  figures.is_comparable = false;
  for (launch::RankFigures& rank : figures.ranks) rank.products_time *= 1.25;
  const std::vector<MeasuredCheck> checks = measured_checks(figures);
  EXPECT_TRUE(complaints_of(checks).empty());
  EXPECT_THAT(check_of(checks, "device-products").result.finding.found, HasSubstr("name a file of it with --machine"));
}

TEST(DoctorMeasured, BlamesTheDeviceWhoseLinksAreAllSlow) {
  launch::ShortFigures figures = figures_of(1);
  for (launch::LinkFigure& link : figures.links) {
    if (link.one == 3 || link.other == 3) link.rate /= 2;
  }
  slow_links(figures, false, 2);
  const std::vector<MeasuredCheck> checks = measured_checks(figures);
  EXPECT_EQ(complaints_of(checks), (std::set<std::string>{"node-links", "node-links-alike"}));
  const MeasuredCheck& check = check_of(checks, "node-links-alike");
  EXPECT_EQ(check.slow, "rank 3 (node01)");
  EXPECT_THAT(check.result.finding.found, HasSubstr("150 GB/s each way, others 300 GB/s"));
  EXPECT_THAT(check.result.finding.remedy, HasSubstr("nvidia-smi nvlink -s"));
}

TEST(DoctorMeasured, NamesOneSlowLink) {
  launch::ShortFigures figures = figures_of(1);
  for (launch::LinkFigure& link : figures.links) {
    if (link.one == 2 && link.other == 5) link.rate /= 3;
  }
  const MeasuredCheck check = check_of(measured_checks(figures), "node-links-alike");
  EXPECT_EQ(check.result.finding.found, "rank 2 (node01) and rank 5 (node01) send 100 GB/s each way, others 300 GB/s");
  EXPECT_TRUE(check.slow.empty());
  EXPECT_TRUE(check.slow_nodes.empty()) << "either end may be the reason";
}

TEST(DoctorMeasured, BlamesTheHostOrTheDeviceWithASlowPort) {
  launch::ShortFigures figures = figures_of(3);
  for (launch::LinkFigure& link : figures.links) {
    if (link.across && (link.one / 8 == 2 || link.other / 8 == 2)) link.rate /= 4;
  }
  slow_links(figures, true, 4);
  MeasuredCheck check = check_of(measured_checks(figures), "network-links-alike");
  EXPECT_EQ(check.slow, "host node03");
  EXPECT_EQ(check.slow_nodes, std::set<int>{2});
  EXPECT_THAT(check.result.finding.remedy, HasSubstr("ibstat"));
  figures = figures_of(3);
  for (launch::LinkFigure& link : figures.links) {
    if (link.across && (link.one == 12 || link.other == 12)) link.rate /= 4;
  }
  check = check_of(measured_checks(figures), "network-links-alike");
  EXPECT_EQ(check.slow, "rank 12 (node02)");
  EXPECT_EQ(check.slow_nodes, std::set<int>{1});
}

TEST(DoctorMeasured, AreTheSameFromTheirJson) {
  launch::ShortFigures figures = figures_of(2);
  slow_down(figures, 11, 1.12);
  const nlohmann::ordered_json json = json_of(figures);
  const launch::ShortFigures read = launch::short_figures_from(nlohmann::json::parse(json.dump()));
  EXPECT_EQ(json_of(read), json);
  EXPECT_THROW(launch::short_figures_from(nlohmann::json::object()), DataError);
}

/// A step of 16 ranks on two hosts, predicted.
class DoctorStep : public ::testing::Test {
 protected:
  DoctorStep() : plan_(plan_run(config(), host_, {.device = nullptr, .machine = std::make_shared<Rates>(figures_.base)})) {}

  JudgedStep judge() {
    checks_ = measured_checks(figures_);
    return judge_step(figures_, checks_, "a job", 0.02, step_seconds(plan_));
  }
  const Result& result(const std::string& name) const { return check_of(checks_, name).result; }

  launch::ShortFigures figures_ = figures_of(2);
  std::vector<MeasuredCheck> checks_;

 private:
  using Rates = MachineRates;
  static RunConfig config() {
    RunConfig config;
    config.model = "llama-3.2-1b";
    config.precision = "bf16";
    config.strategies = parse_strategies("zero3-offload");
    config.ranks = 16;
    config.batch = 1;
    config.sequence = 4096;
    return config;
  }
  PluginHost host_{std::vector<std::string>{}};
  const Plan plan_;
};

TEST_F(DoctorStep, CostsNothingOnAMachineThatIsWell) {
  const JudgedStep step = judge();
  EXPECT_LT(std::abs(step.cost()), 0.005) << step.cost();
  EXPECT_TRUE(complaints_of(checks_).empty());
  EXPECT_THAT(result("network-links").finding.found, HasSubstr("costs nothing of this step"));
  EXPECT_EQ(result("step").finding.status, Status::ok);
}

TEST_F(DoctorStep, SaysWhatASlowDeviceCostsAndWhatIsLeftWithoutIt) {
  slow_down(figures_, 11, 1.12);
  const JudgedStep step = judge();
  EXPECT_EQ(complaints_of(checks_), (std::set<std::string>{"devices-alike", "step"}));
  const StepCost cost = *result("devices-alike").cost;
  EXPECT_GT(cost.fraction, 0.02);
  EXPECT_LT(cost.fraction, 0.121) << "a step does not only compute";
  EXPECT_NEAR(cost.seconds, cost.fraction * step.predicted, 1e-6);
  EXPECT_LT(*cost.without, 0.005);
  EXPECT_NEAR(step.cost(), cost.fraction, 0.005);
  EXPECT_EQ(result("devices-alike").finding.status, Status::wrong);
  EXPECT_THAT(result("devices-alike").finding.found,
              ::testing::ContainsRegex("costs [0-9.]+% of this step .*, without rank 11 \\(node02\\) "));
}

TEST_F(DoctorStep, SaysWhatASlowNetworkCosts) {
  slow_links(figures_, true, 3);
  judge();
  EXPECT_EQ(complaints_of(checks_), (std::set<std::string>{"network-links", "step"}));
  EXPECT_GT(result("network-links").cost->fraction, 0.05);
  EXPECT_LT(std::abs(result("node-links").cost->fraction), 0.005);
}

TEST_F(DoctorStep, JudgesEqualsAloneBesideTheFileOfAnotherDevice) {
  figures_.is_comparable = false;
  for (launch::RankFigures& rank : figures_.ranks) rank.products_time *= 2;
  slow_links(figures_, true, 5);
  slow_down(figures_, 11, 1.12);
  for (launch::LinkFigure& link : figures_.links) {
    if (link.one == 3 && !link.across) link.rate /= 2;
  }
  const JudgedStep step = judge();
  EXPECT_FALSE(result("device-products").cost || result("network-links").cost);
  EXPECT_GT(result("devices-alike").cost->fraction, 0.02);
  EXPECT_GT(result("node-links-alike").cost->fraction, 0);
  EXPECT_LT(std::abs(*result("node-links-alike").cost->without), 0.001);
  EXPECT_GT(step.cost(), result("devices-alike").cost->fraction);
  EXPECT_THAT(result("step").finding.found, HasSubstr("; the file is not of this device"));
}

TEST_F(DoctorStep, WarnsWhereWhatIsSlowCostsLittle) {
  for (double* const rate : {&figures_.measured.host_shared.value, &figures_.measured.host_alone.value}) *rate /= 1.5;
  const JudgedStep step = judge();  // zero3-offload copies in the shade of other work
  const StepCost cost = *result("host-copies").cost;
  EXPECT_EQ(result("host-copies").finding.status, cost.fraction > 0.02 ? Status::wrong : Status::warning);
  EXPECT_NEAR(step.cost(), cost.fraction, 0.005);
}

}  // namespace
}  // namespace consist::doctor
