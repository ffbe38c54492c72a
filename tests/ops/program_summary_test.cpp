// Counts of a summary: parameters of the trained model, and of frozen models beside it.
#include "core/lower/program_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/builder.h"
#include "core/lower/prepared_program.h"
#include "tests/idle_device.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgramSummary summary_of(const std::string& model_of_second) {
  Program program;
  program.mesh = Mesh({{"data", 1}});
  Builder builder(program);
  builder.parameter("weight", {3, 5}, 0, 1, true);
  builder.parameter("other.weight", {3, 5, 2}, 0, 1, true);
  program.parameters.back().model = model_of_second;
  test::IdleDevice device;
  PreparedProgram prepared(program, device, {});
  prepared.plan();
  return summarize(prepared);
}

TEST(ProgramSummary, CountsTheParametersOfFrozenModelsApart) {
  const ProgramSummary one = summary_of(""), frozen = summary_of("reference");
  EXPECT_EQ(one.parameters, 45);
  EXPECT_EQ(one.rank_parameters, 45);
  EXPECT_EQ(one.frozen_model_parameters, 0);
  EXPECT_THAT(summary_text(one), Not(HasSubstr("frozen")));
  EXPECT_EQ(frozen.parameters, 15);
  EXPECT_EQ(frozen.rank_parameters, 15);
  EXPECT_EQ(frozen.frozen_model_parameters, 30);
  EXPECT_THAT(summary_text(frozen), HasSubstr("parameters 15.0   in frozen models 30.0   instructions"));
  EXPECT_EQ(nlohmann::json::parse(summary_json(frozen)).at("frozen_model_parameters"), 30);
}

}  // namespace
}  // namespace consist
