// Alternatives and what advice makes of them: each is a configuration that can be planned, and what is said of it is its plan's.
#include "launch/search/advise/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "launch/predict/remedies.h"
#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

using test::planned;
using test::plugin_host;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> texts_of(const Plan& plan, Aim left_out) {
  std::vector<std::string> texts;
  for (const Alternative& a : alternatives_of(plan, plugin_host())) {
    if (a.aim != left_out) texts.push_back(text_of(a.choices, plan.config(), plugin_host()));
  }
  return texts;
}

TEST(Alternatives, FollowFromTheConfiguration) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.precision = "fp32";
    c.ranks = 4;
    c.strategies = {{"zero2", 0}};
    c.plugin_options["zero2"]["stage"] = "1";
    c.accumulation = 4;
    c.recompute.full = true;
  });
  const std::vector<std::string> speed = texts_of(plan, Aim::memory);
  for (const char* text : {"--precision bf16", "--strategy ddp without --zero2.*", "--strategy zero3-offload without --zero2.*",
                           "--recompute none", "--recompute swiglu,rms_norm", "--batch 8 --accumulation 2",
                           "--batch 16 --accumulation 1", "--global-batch 128 --batch 8 --accumulation 4"})
    EXPECT_THAT(speed, Contains(text));
  EXPECT_THAT(speed, Not(Contains(HasSubstr("--batch 2 ")))) << "smaller products are no faster";
  const std::vector<std::string> memory = texts_of(plan, Aim::speed);
  EXPECT_THAT(memory, Contains("--batch 1 --accumulation 16"));
  EXPECT_THAT(memory, Not(Contains(HasSubstr("--global-batch"))));
  EXPECT_THAT(memory, Not(Contains(HasSubstr("--recompute full")))) << "it is on";
  EXPECT_THAT(memory, Contains("--offload-activations all"));
  EXPECT_THAT(speed, Contains("--offload-activations all --recompute none")) << "copies instead of work";
}

TEST(Alternatives, BringActivationsBackFromTheHost) {
  const Plan plan = planned("h200", [](RunConfig& c) { c.offload = parse_offload("all"); });
  EXPECT_THAT(texts_of(plan, Aim::memory), AllOf(Contains("--offload-activations none"),
                                                 Contains("--offload-activations none --recompute full")));
  EXPECT_THAT(texts_of(plan, Aim::speed), Not(Contains("--offload-activations all")));
}

TEST(Alternatives, OptionsOfPartsThatAreThere) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.strategies = {{"pipeline", 2}, {"zero3-offload", 0}};
    c.accumulation = 2;
    c.plugin_options["zero3-offload"]["offload-optimizer.device"] = "cpu";
  });
  const std::vector<std::string> speed = texts_of(plan, Aim::memory);
  for (const char* text :
       {"--zero3-offload.offload-optimizer.device none",
        "--zero3-offload.max-live-parameters 1e12 --zero3-offload.max-reuse-distance 1e12",
        "--zero3-offload.reduce-each-micro-batch false", "--pipeline.schedule zero-bubble", "--bf16.states bf16",
        "--bf16.gradients bf16", "--strategy pipeline=2+ddp without --zero3-offload.*", "--batch 2 --accumulation 4"})
    EXPECT_THAT(speed, Contains(text));
  EXPECT_THAT(speed, Not(Contains(HasSubstr("offload-param.device none")))) << "it is none";
  EXPECT_THAT(speed, Not(Contains("--pipeline.schedule 1f1b"))) << "it is so";
}

TEST(Alternatives, OverNodesPartsWithinAndReplicasAcross) {
  const auto over = [](int ranks, std::vector<StrategyChoice> strategies) {
    return texts_of(planned("h200",
                            [&](RunConfig& c) {
                              c.ranks = ranks;
                              c.strategies = std::move(strategies);
                            }),
                    Aim::memory);
  };
  const std::vector<std::string> two_nodes = over(16, {{"zero2", 0}});
  EXPECT_THAT(two_nodes, Contains("--strategy zero2=8+ddp=2"));
  EXPECT_THAT(two_nodes, Contains("--strategy zero3-offload=8+ddp=2"));
  EXPECT_THAT(over(16, {{"tp-sp", 2}, {"zero2", 0}}), Contains("--strategy tp-sp=2+zero2=4+ddp=2"));
  EXPECT_THAT(over(8, {{"zero2", 0}}), Not(Contains(HasSubstr("+ddp"))));
  const std::vector<std::string> hybrid = over(16, {{"zero2", 8}, {"ddp", 2}});
  EXPECT_THAT(hybrid, Contains("--strategy zero3-offload=8+ddp=2")) << "the inner one of the two";
  EXPECT_THAT(hybrid, Contains("--strategy zero2"));
  for (const char* illegal : {"ddp=8+", "+zero"}) EXPECT_THAT(hybrid, Not(Contains(HasSubstr(illegal))));
}

/// Transports that are given for strategies go along with the strategy that takes their place.
TEST(Alternatives, KeepTransports) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.strategies = {{"tp-sp", 2}, {"zero2", 0}};
    parse_transports("tp-sp=nvlink,zero2=socket", c);
  });
  const std::vector<std::string> speed = texts_of(plan, Aim::memory);
  EXPECT_THAT(speed, Contains(AllOf(StartsWith("--strategy tp-sp=2+ddp --transport "), HasSubstr("ddp=socket"),
                                    HasSubstr("tp-sp=nvlink"))));
  for (const Alternative& a : alternatives_of(plan, plugin_host())) {
    if (a.subject == "strategy") EXPECT_EQ(a.choices[1].option, "transport");
  }
}

/// A step has as many sequences, however many ranks divide them.
TEST(Alternatives, KeepTheGlobalBatch) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.strategies = {{"tp-sp", 4}};
    c.batch = 8;
  });
  const Plan other = plan_run(changed(plan.config(), {{"strategy", "ddp"}}, plugin_host()), plugin_host(), plan.target());
  EXPECT_EQ(other.config().global_batch, 8);
  EXPECT_EQ(other.config().batch, 2);
  const Plan stated =
      plan_run(changed(plan.config(), {{"batch", "4"}, {"accumulation", "2"}}, plugin_host()), plugin_host(), plan.target());
  EXPECT_EQ(stated.config().batch, 4);
}

TEST(Alternatives, SayWhatElseTheyChange) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 2;
    c.strategies = {{"zero2", 0}};
  });
  for (const Alternative& a : alternatives_of(plan, plugin_host())) {
    std::set<std::string> options;
    for (const Choice& choice : a.choices) options.insert(choice.option);
    const bool numerics = options.contains("precision") || options.contains("bf16.states") ||
                          options.contains("bf16.gradients") || options.contains("zero2.communication-data-type");
    EXPECT_EQ(a.caution.starts_with("changes the numerics"), numerics) << text_of(a.choices);
    EXPECT_EQ(a.caution.starts_with("changes the training"), options.contains("global-batch")) << text_of(a.choices);
  }
}

AdviceRequest request_for(const Plan& plan) {
  return {.room = room_of(*plan.target().machine), .limits = {.threads = 2}};
}

TEST(Advice, IsWhatThePlansSay) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.strategies = {{"zero3-offload", 0}};
    c.accumulation = 2;
    c.batch = 1;
    c.recompute.full = true;
  });
  const Prediction base = predict(without_device(plan), 1);
  const std::vector<Advice> advice = advise(plan, plugin_host(), base, request_for(plan));
  ASSERT_GE(advice.size(), 3U);
  std::set<std::string> subjects;
  for (std::size_t n = 0; n < advice.size(); ++n) {
    const Advice& one = advice[n];
    EXPECT_TRUE(subjects.insert(one.alternative.subject).second) << "one of each subject";
    if (n > 0) EXPECT_GE(advice[n - 1].speed, one.speed);
    EXPECT_GE(one.speed, 1.02) << one.options;
    const Plan other = plan_run(changed(plan.config(), one.alternative.choices, plugin_host()), plugin_host(), plan.target());
    const Prediction prediction = predict(other);
    EXPECT_NEAR(one.speed, prediction.tokens_per_second / base.tokens_per_second, 1e-9) << one.options;
    EXPECT_EQ(one.bytes, prediction.most_bytes());
    EXPECT_EQ(one.more_bytes, prediction.most_bytes() - base.most_bytes());
  }
  EXPECT_TRUE(subjects.contains("recompute"));
  const std::vector<Advice> same = without_caution(advice);
  EXPECT_LT(same.size(), advice.size());
  const std::vector<Advice> all = together(plan, plugin_host(), base, same, request_for(plan));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_GE(all[0].speed, 1.02 * same[0].speed);
  EXPECT_EQ(all[0].alternative.caution, "");
}

TEST(Advice, KeepsToTheRoomAndTheLeastGain) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.batch = 1;
    c.accumulation = 2;
    c.recompute.full = true;
  });
  const Prediction base = predict(without_device(plan), 1);
  AdviceRequest request = request_for(plan);
  ASSERT_THAT(advise(plan, plugin_host(), base, request), Contains(::testing::Field(&Advice::more_bytes, ::testing::Gt(0))));
  // Nothing to spare: only what takes less is left.
  request.room.capacity = base.most_bytes();
  EXPECT_THAT(advise(plan, plugin_host(), base, request), Each(::testing::Field(&Advice::more_bytes, ::testing::Le(0))));
  // With the workspaces 95% are taken: there is room for a little more, but a tenth is to stay free.
  request.room = {.capacity = 100 * base.most_bytes(), .besides = 94 * base.most_bytes()};
  EXPECT_THAT(advise(plan, plugin_host(), base, request), Each(::testing::Field(&Advice::more_bytes, ::testing::Le(0))));
  request = request_for(plan);
  request.least_gain = 100;
  EXPECT_THAT(advise(plan, plugin_host(), base, request), IsEmpty());
}

TEST(Advice, OfAsFastOnesTheSmallest) {
  const Plan plan = planned("h200", [](RunConfig& c) { c.accumulation = 4; });
  const Prediction base = predict(without_device(plan), 1);
  const AdviceRequest request = request_for(plan);
  const std::vector<Trial> trials = try_alternatives(plan, plugin_host(), alternatives_of(plan, plugin_host()), {.threads = 2});
  const std::vector<Advice> advice = advise(plan, plugin_host(), base, request);
  ASSERT_FALSE(advice.empty());
  for (const Advice& one : advice) {
    const auto is_rival = [&](const Trial& trial) {
      return trial.alternative.subject == one.alternative.subject && trial.alternative.aim != Aim::memory &&
             request.room.fits(trial.prediction, 0.1);
    };
    double best = 0;
    for (const Trial& trial : trials) best = is_rival(trial) ? std::max(best, trial.prediction.tokens_per_second) : best;
    EXPECT_GE(one.speed * base.tokens_per_second, 0.99 * best) << one.options;
    for (const Trial& trial : trials) {
      if (is_rival(trial) && trial.prediction.tokens_per_second >= 0.99 * best)
        EXPECT_GE(trial.prediction.most_bytes(), one.bytes) << text_of(trial.alternative.choices) << " beside " << one.options;
    }
  }
}

TEST(Advice, PartsOfAFasterChangeAreNotSaid) {
  const Plan plan = planned("h200", [](RunConfig& c) {
    c.ranks = 4;
    c.strategies = {{"zero3-offload", 0}};
    c.plugin_options["zero3-offload"] = {{"offload-optimizer.device", "cpu"}, {"offload-param.device", "cpu"}};
  });
  const Prediction base = predict(without_device(plan), 1);
  std::vector<std::string> texts;
  for (const Advice& one : advise(plan, plugin_host(), base, request_for(plan))) texts.push_back(one.options);
  EXPECT_THAT(texts, Contains("--zero3-offload.offload-optimizer.device none --zero3-offload.offload-param.device none"));
  EXPECT_THAT(texts, Not(Contains("--zero3-offload.offload-optimizer.device none")));
}

TEST(Advice, IsOneLine) {
  Advice advice{.options = "--batch 4 --accumulation 2", .speed = 1.118, .more_bytes = std::int64_t{41} << 30};
  EXPECT_EQ(text_of(advice), "--batch 4 --accumulation 2: 1.12 times as fast, 41.0 GiB more");
  advice.more_bytes = 0;
  EXPECT_EQ(text_of(advice), "--batch 4 --accumulation 2: 1.12 times as fast, as much memory");
  advice.more_bytes = -(std::int64_t{1} << 30);
  advice.alternative.caution = "changes the numerics: x";
  EXPECT_EQ(text_of(advice), "--batch 4 --accumulation 2: 1.12 times as fast, 1.0 GiB less; changes the numerics: x");
}

TEST(Remedies, AreFastestFirstAndEachSavesMemoryForItsTime) {
  const Plan plan = planned("l40s", [](RunConfig& c) {
    c.ranks = 2;
    c.batch = 32;
  });
  const Prediction asked = predict(without_device(plan), 1);
  ASSERT_FALSE(asked.fits());
  const std::vector<Remedy> remedies = remedies_for(plan, plugin_host());
  ASSERT_GE(remedies.size(), 2U);
  std::int64_t least = asked.capacity + 1;
  for (std::size_t n = 0; n < remedies.size(); ++n) {
    EXPECT_TRUE(remedies[n].prediction.fits());
    if (n > 0) EXPECT_LE(remedies[n].prediction.tokens_per_second, remedies[n - 1].prediction.tokens_per_second);
    EXPECT_LT(remedies[n].prediction.most_bytes(), least) << remedies[n].options;
    if (remedies[n].caution.empty()) least = remedies[n].prediction.most_bytes();
  }
  EXPECT_THAT(text_of(remedies, asked), HasSubstr("' fits: "));
}

}  // namespace
}  // namespace consist::launch
