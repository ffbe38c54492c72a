// Errors of simulated steps: combined by kind, earned by measured steps, forgotten with the figures that they were measured with.
#include "core/cost/step_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/cost/machine_file.h"
#include "core/plan/machine_choice.h"
#include "tests/cost/plain_machine.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const StepErrors measured{{"one device", {0.04}, 20}, {"nvlink within a node", {0.03}, 30},
                          {"fp8", {0.05}, 9},         {"socket within a node", {0.2}, 2},
                          {"offload", {0.12}, 3},     {"efa between nodes", {0.3}, 5}};

/// A machine of figures that a file may have.
Machine machine_of_a_file() {
  Machine machine = test::plain_machine();
  machine.device.memory_rate = machine.host_alone = machine.host_shared = {1e12};
  machine.node = machine.network = test::links_of(1e12);
  return machine;
}

ErrorBar bar_of(const std::vector<std::string>& kinds) {
  return error_bar(measured, kinds);
}

TEST(StepErrors, AKindAddsWhatItsErrorHasBeyondThatOfTheDevice) {
  EXPECT_DOUBLE_EQ(*bar_of({"one device"}).value, 0.04);
  EXPECT_DOUBLE_EQ(*bar_of({"one device", "fp8"}).value, 0.05);
  EXPECT_DOUBLE_EQ(*bar_of({"one device", "nvlink within a node"}).value, 0.04) << "never less than the device's";
  EXPECT_DOUBLE_EQ(*bar_of({"one device", "fp8", "offload"}).value, std::sqrt(0.05 * 0.05 + 0.12 * 0.12 - 0.04 * 0.04));
  EXPECT_EQ(text_of(bar_of({"one device", "fp8"})), "±5.0%: one device ±4.0% (20 measured steps), fp8 ±5.0% (9)");
}

TEST(StepErrors, AreNotKnownWithoutThreeMeasuredStepsOfEachKind) {
  const ErrorBar few = bar_of({"one device", "socket within a node", "experts"});
  EXPECT_FALSE(few.value.has_value());
  EXPECT_EQ(why_unknown(few),
            "only 2 steps over socket within a node were measured (3 are needed), no step with experts was measured");
  EXPECT_EQ(text_of(few), "not known: " + why_unknown(few) + "; one device ±4.0% (20 measured steps)");
  EXPECT_EQ(why_unknown(bar_of({"one device", "context"})), "no step with context parallelism was measured");
  EXPECT_EQ(why_unknown(error_bar(StepErrors(), std::vector<std::string>{"one device"})), "no step on one device was measured");
  EXPECT_EQ(why_unknown(bar_of({"one device", "offload"})), "");
}

TEST(StepErrors, OfAFileNameTheirKindTheirStepsAndTheirSource) {
  const Json good = Json::parse(to_json(machine_of_a_file(), {}, measured));
  const auto error_of = [&](const char* key, const Json& value) -> std::string {
    Json bad = good;
    bad["step_errors"][1][key] = value;
    try {
      machine_from_json(bad.dump(), "m.json");
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(step_errors_from_json(good.dump(), "m.json").size(), 6U);
  EXPECT_EQ(machine_from_json(good.dump(), "m.json").step_error.value, 0.04);
  EXPECT_THAT(error_of("kind", "luck"), HasSubstr("m.json: step_errors[1]: kind is \"luck\"; it can be one device, context"));
  EXPECT_THAT(error_of("kind", " within a node"), HasSubstr("it can be one device"));
  EXPECT_THAT(error_of("kind", "one device"), HasSubstr("stands in the list twice"));
  EXPECT_THAT(error_of("value", 0), HasSubstr("above 0"));
  EXPECT_THAT(error_of("steps", 0), HasSubstr("at least 1"));
  EXPECT_THAT(error_of("steps", 2.5), HasSubstr("whole number"));
  EXPECT_THAT(error_of("rows", 3), HasSubstr("unknown key"));
}

TEST(StepErrors, OfFilesBeforeThereWereKindsAreThoseOfOneDevice) {
  Json json = Json::parse(to_json(machine_of_a_file()));
  json.erase("step_errors");
  json["step_error"] = {{"value", 0.018}, {"source", "measured here"}};
  const StepErrors old = step_errors_from_json(json.dump(), "m.json");
  ASSERT_EQ(old.size(), 1U);
  EXPECT_EQ(old[0].kind, "one device");
  EXPECT_EQ(old[0].steps, least_measured_steps);
  EXPECT_EQ(old[0].error.value, 0.018);
  EXPECT_EQ(machine_from_json(json.dump(), "m.json").step_error.value, 0.018);
  json["step_error"]["value"] = 0;
  EXPECT_TRUE(step_errors_from_json(json.dump(), "m.json").empty());
}

std::vector<std::string> kinds_left(const std::string& machine) {
  std::vector<std::string> kinds;
  for (const StepError& error : step_errors_for(machine, parse_machine(machine))) kinds.push_back(error.kind);
  return kinds;
}

TEST(StepErrors, AreForgottenWithTheFiguresThatTheyWereMeasuredWith) {
  const std::vector<std::string> all = kinds_left("h200");
  EXPECT_THAT(all, ::testing::IsSupersetOf({"one device", "nvlink within a node", "offload", "fp8"}));
  const auto without = [&](const std::string& kind) {
    std::vector<std::string> kinds = all;
    std::erase(kinds, kind);
    return kinds;
  };
  EXPECT_EQ(kinds_left("h200,capacity=80e9,ranks-per-node=4,power-limit=500"), all) << "no step takes longer by these";
  EXPECT_EQ(kinds_left("h200,network=1e9"), all) << "nothing between nodes was measured";
  EXPECT_EQ(kinds_left("h200,host=20e9"), without("offload"));
  EXPECT_EQ(kinds_left("h200,node=20e9"), without("nvlink within a node"));
  EXPECT_EQ(kinds_left("h200,nvlink-node=20e9"), without("nvlink within a node"));
  EXPECT_EQ(kinds_left("h200,socket-node=20e9"), all);
  EXPECT_THAT(kinds_left("h200,products=0.5"), ElementsAre()) << "every step has products";
}

}  // namespace
}  // namespace consist
