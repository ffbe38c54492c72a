// The power of a machine's file, and what a step takes by it.
#include "core/cost/power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/compile/compile.h"
#include "core/cost/machine_file.h"
#include "core/plan/machine_choice.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json figure(double value, const char* source = "measured here") {
  return {{"value", value}, {"source", source}};
}
Json load(const char* work, double value) {
  return {{"work", work}, {"value", value}, {"source", "measured here"}};
}

/// A machine file with this power.
std::string file_with(const Json& power) {
  Json json = Json::parse(to_json(*find_machine("h200")));
  if (!power.is_null()) json["power"] = power;
  return json.dump();
}
std::string error_of_power(const Json& power) {
  try {
    machine_from_json(file_with(power), "m.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Power, OfMachinesThatShipIsMeasuredOrTheDataSheetsLimit) {
  for (const auto& [name, watts] : {std::pair{"h200", 700.0}, {"h100", 700.0}, {"a100", 400.0}, {"l40s", 350.0}}) {
    const Power power = power_named(name);
    EXPECT_EQ(power.limit.value, watts) << name;
    EXPECT_EQ(power.limit.source, FigureSource::data_sheet);
    if (power.is_bound()) {
      EXPECT_THAT(origin_of(power), HasSubstr("at most, by the power limit of the data sheet"));
    } else {
      EXPECT_EQ(origin_of(power), "by powers measured on such a machine");
      EXPECT_LT(power.idle.value, power.loads.at(0).watts.value) << name;
      EXPECT_LE(power.loads.at(0).watts.value, watts) << name;
    }
  }
  EXPECT_FALSE(power_named("h200").is_bound());
  EXPECT_TRUE(power_named("a100").is_bound());
  EXPECT_FALSE(power_named("cpu").is_known());
  EXPECT_EQ(power_named("").limit.value, power_named(reference_machine()->name).limit.value)
      << "what is planned for without --machine";
}

TEST(Power, IsWrittenAndReadToTheBit) {
  Power power{.limit = {700.25, FigureSource::data_sheet}, .idle = {70.125, FigureSource::measured_here}, .loads = {}};
  power.loads = {{"*", {512.3, FigureSource::measured_here}}, {"products", {688.1, FigureSource::measured}}};
  const std::string text = to_json(*find_machine("h200"), power);
  const Power again = power_from_json(text, "again");
  EXPECT_EQ(to_json(machine_from_json(text, "again"), again), text);
  ASSERT_EQ(again.loads.size(), 2U);
  EXPECT_EQ(again.loads[1].watts.source, FigureSource::measured);
  EXPECT_EQ(origin_of(again), "by powers measured here and measured on such a machine");
  EXPECT_FALSE(power_from_json(to_json(*find_machine("h200")), "none").is_known());
}

TEST(Power, ErrorsSayWhatIsMissing) {
  EXPECT_EQ(error_of_power(Json()), "");
  EXPECT_EQ(error_of_power({{"limit", figure(700)}}), "");
  EXPECT_EQ(error_of_power({{"idle", figure(70)}, {"loads", {load("*", 600), load("attention", 500)}}}), "");
  EXPECT_THAT(error_of_power(Json::object()), HasSubstr("m.json: power: limit and loads are missing"));
  EXPECT_THAT(error_of_power({{"limit", figure(0)}}), HasSubstr("m.json: power: limit: value must be a number above 0"));
  EXPECT_THAT(error_of_power({{"limit", {{"value", 1}, {"source", "guess"}}}}), HasSubstr("source is \"guess\"; it can be"));
  EXPECT_THAT(error_of_power({{"idle", figure(70)}, {"loads", {load("products", 600)}}}),
              HasSubstr("must say what work \"*\" draws"));
  EXPECT_THAT(error_of_power({{"loads", {load("*", 600)}}}), HasSubstr("needs \"idle\" beside it"));
  EXPECT_THAT(error_of_power({{"idle", figure(70)}, {"loads", {load("*", 600), load("*", 500)}}}),
              HasSubstr("stands in the list twice"));
  EXPECT_THAT(error_of_power({{"idle", figure(70)}, {"loads", {load("*", 600), load("sleep", 5)}}}),
              HasSubstr("work is \"sleep\"; it can be *, products, attention, memory_bound, optimizer"));
  EXPECT_THAT(error_of_power({{"limit", figure(700)}, {"lmit", 3}}), HasSubstr("unknown key \"lmit\""));
}

TEST(Power, IdleCountsWhereNothingIsComputed) {
  Power power{.limit = {700}, .idle = {100}, .loads = {{"*", {400}}, {"products", {600}}}};
  // The 10 s have 4 s of products, 1 s of attention, 2 s bound by memory, 1 s of the optimizer; 2 s wait.
  EXPECT_DOUBLE_EQ(joules_of(power, 10, {4, 1, 2, 1}), 4 * 600 + 4 * 400 + 2 * 100);
  power.loads.clear();
  EXPECT_DOUBLE_EQ(joules_of(power, 10, {4, 1, 2, 1}), 7000) << "at most";
}

TEST(Power, IsReplacedOnTheCommandLine) {
  const Power power = power_named("h200,power=500,idle-power=90,power-limit=650");
  EXPECT_EQ(power.limit.value, 650);
  EXPECT_EQ(power.idle.value, 90);
  ASSERT_EQ(power.loads.size(), 1U);
  EXPECT_EQ(power.loads[0].watts.value, 500);
  EXPECT_EQ(power.loads[0].watts.source, FigureSource::given);
  EXPECT_EQ(origin_of(power_named("cpu,power-limit=200")), "at most, by the power limit (200 W, given)");
  EXPECT_THROW(power_named("a100,power=500"), UsageError);
  EXPECT_THROW(power_named("h200,power-limit=0"), UsageError);
}

}  // namespace
}  // namespace consist
