// Sessions: the plan that a job has settled, and named programs that share the states of the first.
#include "core/training/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "consist/error.h"
#include "core/training/generator.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  static RunConfig tiny() {
    RunConfig config;
    config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
    config.device = "cpu";
    config.batch = 1;
    config.sequence = 16;
    config.evaluate_every = 1;
    config.plugin_options["cpu"]["threads"] = "1";
    return config;
  }
  static NamedPrograms train_and_evaluate(const Plan& plan) {
    NamedPrograms programs;
    programs.push_back({train_program, plan.step(0)});
    programs.push_back({evaluate_program, plan.evaluation(0).value()});
    return programs;
  }
  static void* address(PreparedProgram& program, const std::string& name) {
    return program.buffer(program.program().find(name)).data;
  }

  PluginHost host_{{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
  const std::unique_ptr<JoinedJob> job_ = join_job({});
};

TEST_F(SessionTest, ItsPlanIsForTheDeviceAndTheOneBeforeStaysAsItWas) {
  const Plan plan = plan_run(tiny(), host_);
  StartTimes times;
  const Session session(plan, *job_, &times);
  EXPECT_EQ(plan.target().device, nullptr);
  ASSERT_NE(session.plan().target().device, nullptr);
  EXPECT_EQ(session.device().info().kind, "cpu");
  EXPECT_EQ(session.plan().target().machine->name, session.machine().machine.name);
  EXPECT_EQ(times.parts().back().first, "device");
}

TEST_F(SessionTest, NamedProgramsReadTheStatesOfTheFirst) {
  Session session(plan_run(tiny(), host_), *job_);
  NamedPrograms programs = train_and_evaluate(session.plan());
  for (NamedProgram& text : text_programs(session.plan(), 64)) programs.push_back(std::move(text));
  session.prepare(std::move(programs));
  TrainingState& state = session.state();
  state.allocate(false);
  EXPECT_EQ(&state.step(), state.find(train_program));
  EXPECT_EQ(state.evaluation(), state.find(evaluate_program));
  EXPECT_EQ(state.find("distill"), nullptr);
  void* const weights = address(state.step(), "lm_head.weight");
  for (const char* name : {evaluate_program, decode_program})
    EXPECT_EQ(address(*state.find(name), "lm_head.weight"), weights) << name;

  // A cache of keys and values is a state of both text programs and not of the step.
  const Program& decode = state.find(decode_program)->program();
  const auto cache = std::find_if(decode.tensors.begin(), decode.tensors.end(),
                                  [](const Tensor& tensor) { return tensor.state && tensor.role == Role::activation; });
  ASSERT_NE(cache, decode.tensors.end());
  EXPECT_EQ(address(*state.find(decode_program), cache->name), address(*state.find(prefill_program), cache->name));
  EXPECT_GT(address(*state.find(decode_program), cache->name), weights);
}

TEST_F(SessionTest, ProgramsGiveWayToThoseOfARoomierPlanAndKeepTheirStates) {
  Session session(plan_run(tiny(), host_), *job_);
  session.prepare(train_and_evaluate(session.plan()));
  TrainingState& state = session.state();
  state.allocate(false);
  state.initialize(7);
  const auto first_weight = [&] {
    std::vector<float> values(1);
    state.read_weights("lm_head.weight", 0, values);
    return values[0];
  };
  const float before = first_weight();
  ASSERT_NE(before, 0);
  const Plan roomier = session.plan().with_room(1.5);
  session.replace(roomier, train_and_evaluate(roomier), false);
  EXPECT_EQ(session.plan().room(), 1.5);
  EXPECT_EQ(first_weight(), before);
  NamedPrograms others;
  others.push_back({evaluate_program, roomier.evaluation(0).value()});
  EXPECT_THROW(session.replace(roomier, std::move(others), false), ProgramError);
}

TEST_F(SessionTest, APlanBeyondTheMemoryIsRefusedWithItsBytes) {
  RunConfig config = tiny();
  config.memory_limit = 1000;
  Session session(plan_run(config, host_), *job_);
  try {
    session.prepare(train_and_evaluate(session.plan()));
    FAIL() << "it does not fit";
  } catch (const TooLarge& refusal) {
    EXPECT_GT(refusal.bytes(), session.memory_limit());
    EXPECT_THAT(refusal.what(), HasSubstr("may be used"));
  }
}

}  // namespace
}  // namespace consist
