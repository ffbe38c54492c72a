// --deepspeed-config: every key of a DeepSpeed JSON is honoured, named as having no effect, or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "launch/import/deepspeed_keys.h"
#include "tests/child_process.h"
#include "tests/commands/import/deepspeed_case.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const std::string users_file = CONSIST_SOURCE_DIR "/docs/cases/zero3-offload.json";

using Deepspeed = test::DeepspeedTest;

TEST_F(Deepspeed, AUsersFileBecomesAConfiguration) {
  const RunConfig c = config_of(users_file, {"--precision=bf16", "--batch=1", "--accumulation=4", "--learning-rate=2e-5"});
  EXPECT_EQ(text_of(c.strategies), "zero3-offload");
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(c.batch, 1);
  EXPECT_EQ(c.accumulation, 4);
  EXPECT_EQ(c.optimizer.max_norm, 1);
  const std::map<std::string, std::string> expected{
      {"contiguous-gradients", "true"},        {"max-live-parameters", "100000000"}, {"max-reuse-distance", "100000000"},
      {"offload-optimizer.device", "cpu"},     {"offload-param.device", "cpu"},      {"overlap-comm", "true"},
      {"param-persistence-threshold", "1600"},  // 10 x the hidden size
      {"prefetch-bucket-size", "50000000"},    {"reduce-bucket-size", "50000000"},   {"sub-group-size", "100000000"}};
  EXPECT_EQ(c.plugin_options.at("zero3-offload"), expected);
  const std::vector<std::string>& notes = c.notes;
  EXPECT_THAT(notes, Contains(HasSubstr("gradient_clipping \"auto\": --clip 1")));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("steps_per_print"), HasSubstr("no effect here"))));
}

/// Every key of the file is in a note.
TEST_F(Deepspeed, NothingOfTheFileIsPassedOverInSilence) {
  const json file = json::parse(read_whole(users_file));
  std::string notes;
  for (const std::string& note : config_of(users_file, {}).notes) notes += note + "\n";
  const std::function<void(const json&, const std::string&)> visit = [&](const json& object, const std::string& prefix) {
    for (const auto& [name, value] : object.items()) {
      if (value.is_object())
        visit(value, prefix + name + ".");
      else
        EXPECT_THAT(notes, HasSubstr("deepspeed " + prefix + name + " "));
    }
  };
  visit(file, "");
}

/// docs/cases.md, case 3.
TEST_F(Deepspeed, AutomaticBucketsFollowTheHiddenSize) {
  const RunConfig c = config_of(std::string(CONSIST_SOURCE_DIR "/docs/cases/zero3-offload-batch4.json"),
                                {"--precision=bf16", "--batch=4", "--accumulation=4", "--ranks=4"});
  const auto& options = c.plugin_options.at("zero3-offload");  // the hidden size is 160
  EXPECT_EQ(options.at("reduce-bucket-size"), "25600");
  EXPECT_EQ(options.at("prefetch-bucket-size"), "23040");
  EXPECT_EQ(options.at("sub-group-size"), "1000000000");
  EXPECT_EQ(options.at("max-live-parameters"), "1000000000");
  EXPECT_THAT(c.notes, Contains(AllOf(HasSubstr("model_save false"), HasSubstr("nothing is gathered"))));
}

TEST_F(Deepspeed, ValuesOfTheFileCanBeReplaced) {
  const auto options = [&](std::vector<std::string> words) {
    return config_of(users_file, std::move(words)).plugin_options.at("zero3-offload");
  };
  EXPECT_EQ(options({"--deepspeed-set=zero_optimization.sub_group_size=1e9"}).at("sub-group-size"), "1000000000");
  EXPECT_EQ(options({"--deepspeed-set", "zero_optimization.reduce_bucket_size=auto", "--deepspeed-set",
                     "zero_optimization.overlap_comm=false"}),
            [&] {
              auto expected = options({});
              expected["reduce-bucket-size"] = "25600";
              expected["overlap-comm"] = "false";
              return expected;
            }());
  const RunConfig c = config_of({{"gradient_clipping", 0.5}},
                                {"--deepspeed-set=gradient_clipping=0.25", "--deepspeed-set=optimizer.params.lr=1e-4"});
  EXPECT_EQ(c.optimizer.max_norm, 0.25);
  EXPECT_EQ(c.learning_rate, 1e-4) << "a key that the file lacks";
  EXPECT_THAT(c.notes, Contains(AllOf(HasSubstr("0.25 (--deepspeed-set) in place of 0.5"))));
  expect_refused(json::object(), "\"zero_optimization.no_such_key\" is not known",
                 {"--deepspeed-set=zero_optimization.no_such_key=1"});
  expect_refused({{"zero_optimization", 3}}, "no object that could hold", {"--deepspeed-set=zero_optimization.stage=1"});
  expect_refused(json::object(), "must be KEY=VALUE", {"--deepspeed-set=stage"});
  EXPECT_THROW(make_config(parse_run({"--model=llama-tiny", "--deepspeed-set=gradient_clipping=1"}), host_), UsageError);
}

TEST_F(Deepspeed, StagesAreStrategies) {
  EXPECT_EQ(text_of(config_of(json::object()).strategies), "ddp");
  EXPECT_EQ(text_of(config_of({{"zero_optimization", {{"stage", 0}}}}).strategies), "ddp");
  for (const int stage : {1, 2}) {
    const RunConfig c = config_of({{"zero_optimization", {{"stage", stage}, {"allgather_bucket_size", 2e8}}}});
    EXPECT_EQ(text_of(c.strategies), "zero2");
    EXPECT_EQ(c.plugin_options.at("zero2").at("stage"), std::to_string(stage));
    EXPECT_EQ(c.plugin_options.at("zero2").at("allgather-bucket-size"), "200000000");
  }
  const RunConfig c = config_of({{"zero_optimization", {{"stage", 2}}}}, {"--strategy=zero2=2"});
  EXPECT_EQ(text_of(c.strategies), "zero2=2") << "what is given and agrees stays";
  expect_refused({{"zero_optimization", {{"stage", 3}}}}, "--strategy zero2 is given", {"--strategy=zero2"});
  expect_refused({{"zero_optimization", {{"stage", 4}}}}, "it must be a whole number from 0 to 3");
}

TEST_F(Deepspeed, GradientsTravelAsTheFileSays) {
  for (const char* name : {"bf16", "bfp16", "fp32"}) {
    const RunConfig c = config_of({{"communication_data_type", name}, {"zero_optimization", {{"stage", 3}}}});
    EXPECT_EQ(c.plugin_options.at("zero3-offload").at("communication-data-type"), name[0] == 'b' ? "bf16" : "fp32");
  }
  EXPECT_NO_THROW(config_of({{"communication_data_type", "fp32"}, {"zero_optimization", {{"stage", 0}}}}));
  expect_refused({{"communication_data_type", "bf16"}, {"zero_optimization", {{"stage", 0}}}}, "from stage 1 on");
  expect_refused({{"communication_data_type", "fp16"}, {"zero_optimization", {{"stage", 2}}}}, "it may be null");
}

TEST_F(Deepspeed, BatchOptimizerAndPrecisionAreHonoured) {
  const RunConfig c = config_of(
      {{"train_batch_size", 64},
       {"train_micro_batch_size_per_gpu", 2},
       {"bf16", {{"enabled", true}}},
       {"gradient_clipping", 0.5},
       {"optimizer",
        {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"betas", {0.8, 0.9}}, {"eps", 1e-7}, {"weight_decay", 0.01}}}}},
       {"scheduler",
        {{"type", "WarmupDecayLR"},
         {"params", {{"warmup_max_lr", 1e-4}, {"warmup_num_steps", 10}, {"total_num_steps", 100}, {"warmup_type", "linear"}}}}}});
  EXPECT_EQ(c.global_batch, 64);
  EXPECT_EQ(c.batch, 2);
  EXPECT_EQ(c.accumulation, 0) << "follows from the other two and the ranks";
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  EXPECT_EQ(c.learning_rate, 1e-4);
  EXPECT_EQ(c.plugin_options.at("adamw").at("beta1"), "0.8");
  EXPECT_EQ(c.plugin_options.at("adamw").at("beta2"), "0.9");
  EXPECT_EQ(c.plugin_options.at("adamw").at("epsilon"), "1e-07");
  EXPECT_EQ(c.optimizer.weight_decay, 0.01);
  EXPECT_EQ(c.schedule, "linear");
  EXPECT_EQ(c.plugin_options.at("linear").at("warmup"), "10");
  EXPECT_EQ(c.steps, 100);
}

TEST_F(Deepspeed, WhatIsNotDoneHereIsRefused) {
  expect_refused({{"zero_optimisation", json::object()}}, "\"zero_optimisation\" is not known here");
  expect_refused({{"zero_optimization", {{"stage", 3}, {"stage3_prefetch_buckets", 1}}}},
                 "stage3_prefetch_buckets\" is not known");
  expect_refused({{"fp16", {{"enabled", true}}}}, "fp16.enabled");
  expect_refused({{"optimizer", {{"type", "Lamb"}}}}, "AdamW");
  expect_refused({{"scheduler", {{"type", "OneCycle"}}}}, "scheduler.type");
  expect_refused({{"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "nvme"}}}}}}, "offload_param.device");
  expect_refused({{"zero_optimization", {{"stage", 2}, {"offload_param", {{"device", "cpu"}}}}}}, "needs stage 3");
  expect_refused({{"zero_optimization", {{"stage", 3}, {"zero_quantized_weights", true}}}}, "zero_quantized_weights");
  expect_refused({{"zero_optimization", {{"stage", 3}, {"overlap_comm", "yes"}}}}, "overlap_comm");
  expect_refused({{"zero_optimization", 3}}, "must be an object");
  expect_refused({{"curriculum_learning", {{"enabled", true}}}}, "curriculum_learning");
  expect_refused({{"train_batch_size", 1.5}}, "whole number");
  expect_refused(json::array(), "no JSON object");
  EXPECT_THROW(config_of(folder_ / "missing.json", {}), SystemError);
}

TEST_F(Deepspeed, ContradictionsAreRefusedAndAgreementIsNot) {
  expect_refused({{"gradient_clipping", 0.5}}, "--clip 1 is given", {"--clip=1"});
  expect_refused({{"train_micro_batch_size_per_gpu", 2}}, "--batch 4 is given", {"--batch=4"});
  expect_refused({{"bf16", {{"enabled", true}}}}, "--precision fp32 is given", {"--precision=fp32"});
  expect_refused({{"zero_optimization", {{"stage", 2}, {"reduce_bucket_size", 100}}}}, "--zero2.reduce-bucket-size 200 is given",
                 {"--zero2.reduce-bucket-size=200"});
  const RunConfig c = config_of({{"gradient_clipping", 0.5}, {"bf16", {{"enabled", true}}}}, {"--clip=0.5", "--precision=bf16"});
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
}

TEST(DeepspeedRules, AreUniqueAndTheirOptionsExist) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  std::set<std::string_view> paths;
  for (const DeepspeedRule& rule : deepspeed_rules) {
    EXPECT_TRUE(paths.insert(rule.path).second) << rule.path << " is listed twice";
    if (rule.key != DeepspeedKey::count && rule.key != DeepspeedKey::flag) continue;
    for (const auto& [strategy, least, most] : {std::tuple{"zero2", 1, 2}, {"zero3-offload", 3, 3}}) {
      if (rule.most_stage < least || rule.least_stage > most) continue;
      const auto table = host.option_table("strategy", strategy);
      EXPECT_TRUE(std::any_of(table.begin(), table.end(), [&](const OptionSpec& s) { return s.name == rule.argument; }))
          << strategy << " has no option " << rule.argument;
    }
  }
}

TEST(DeepspeedRun, AUsersFileTrains) {
  const test::ChildResult result = test::run_child(
      {CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=synthetic", "--from-scratch", "--ranks=2",
       "--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied", "--precision=bf16", "--batch=1", "--accumulation=4",
       "--sequence=16", "--steps=2", "--learning-rate=2e-5", "--from-notes", "--deepspeed-config=" + users_file});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("zero3-offload on 2 ranks"));
  EXPECT_THAT(result.output, HasSubstr("deepspeed zero_optimization.stage3_param_persistence_threshold \"auto\""));
}

TEST(DeepspeedRun, WhatAHostCannotPinIsRefusedOnce) {
  const test::ChildResult result =
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=synthetic", "--from-scratch",
                       "--ranks=2", "--model=llama-tiny", "--batch=1", "--sequence=16", "--steps=1", "--host-memory-limit=1Mi",
                       "--deepspeed-config=" + users_file});
  EXPECT_EQ(result.status, 2) << result.output;
  const std::string says = "(2 ranks), 1.0 MiB may be pinned by --host-memory-limit";
  EXPECT_THAT(result.output, HasSubstr(says));
  EXPECT_EQ(result.output.find(says), result.output.rfind(says)) << result.output;
}

}  // namespace
}  // namespace consist
