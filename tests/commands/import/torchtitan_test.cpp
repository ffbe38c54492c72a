// --from a torchtitan TOML, of both layouts.
#include <cmath>
#include <numbers>

#include "tests/commands/import/trainer_file_case.h"

namespace consist {
namespace {

using testing::Contains;
using testing::HasSubstr;

const std::string none = "[activation_checkpoint]\nmode = \"none\"\n";

class Torchtitan : public test::TrainerFileTest {
 protected:
  static std::string file(const std::string& parallelism, const std::string& more = "", const std::string& training = "") {
    return "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nlocal_batch_size = 4\nseq_len = 128\nsteps = 20\n" +
           training + "\n[parallelism]\n" + parallelism + "\n" + more;
  }
};

TEST_F(Torchtitan, AllThatIsRefusedIsSaidAtOnce) {
  const std::string text = file("tensor_parallel_degree = 'x'", "[unheard_of]\na = 1\n[unknown]\nb = 2\n");
  expect_refused(text, "2 things are not done here");
  expect_refused(text, "unheard_of");
  expect_refused(text, "\"unknown\"");
  const std::string values = file("tensor_parallel_degree = 'x'", "[optimizer]\nname = \"Lamb\"\n");
  expect_refused(values, "tensor_parallel_degree");
  expect_refused(values, "Lamb");
}

TEST_F(Torchtitan, ListsMayBeTextsWithCommas) {
  const RunConfig c = config_of(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = \"float8\"\n[training]\nsteps = 1\n"
      "seq_len = 128\n[parallelism]\ndata_parallel_shard_degree = 1\n[float8]\n"
      "filter_fqns = \"output,wq\"\n");
  EXPECT_EQ(c.precision, "fp8");
  EXPECT_EQ(option(c, "fp8", "except"), "*q_proj.weight");
}

TEST_F(Torchtitan, FilesOfOthersAreNamed) {
  expect_refused(R"({"output_dir": "x", "per_device_train_batch_size": 4, "bf16": true, "gradient_accumulation_steps": 2})",
                 "Hugging Face's TrainingArguments");
  const std::string path = written("batch_size = 12\nblock_size = 1024\n", "config.py");
  expect_refused_by([&] { config_of_words({"--from=" + path}); }, path, "is Python code");
}

TEST_F(Torchtitan, AFileBecomesAConfiguration) {
  const RunConfig c = config_of(R"(# remarks are passed over
[job]
description = "a test"
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1e-4
eps = 1e-7
beta2 = 0.9
weight_decay = 0.05
[lr_scheduler]
warmup_steps = 2
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 4096
max_norm = 0.5
steps = 50
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
context_parallel_degree = 1
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[quantize.linear.float8]
recipe_name = "rowwise"
filter_fqns = ["output", "attention.wk"]
[checkpoint]
enable = true
folder = "x"
export_dtype = "bfloat16"
)");
  EXPECT_EQ(c.model, "llama-3.1-8b");
  EXPECT_EQ(c.export_dtype, "bfloat16");
  EXPECT_EQ(text_of(c.strategies), "tp-sp=2+zero3-offload=4+ddp=2");
  EXPECT_EQ(c.ranks, 16) << "the product of the degrees";
  EXPECT_EQ(c.precision, "fp8");
  EXPECT_EQ(option(c, "fp8", "scaling"), "row");
  EXPECT_EQ(option(c, "fp8", "except"), "*k_proj.weight");
  EXPECT_EQ(option(c, "fp8", "states"), "f32");
  EXPECT_EQ(option(c, "zero3-offload", "communication-data-type"), "fp32");
  EXPECT_EQ(option(c, "zero3-offload", "max-reuse-distance"), "0") << "parameters are given up after forward";
  EXPECT_EQ(option(c, "zero3-offload", "offload-param.device"), "none");
  EXPECT_EQ(c.batch, 2);
  EXPECT_EQ(c.global_batch, 64);
  EXPECT_EQ(c.accumulation, 0) << "follows";
  EXPECT_EQ(c.sequence, 4096);
  EXPECT_EQ(c.steps, 50);
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  EXPECT_EQ(c.optimizer.weight_decay, 0.05);
  EXPECT_EQ(c.learning_rate, 1e-4);
  EXPECT_EQ(option(c, "adamw", "beta1"), "0.9") << "torchtitan's default";
  EXPECT_EQ(option(c, "adamw", "beta2"), "0.9");
  EXPECT_EQ(option(c, "adamw", "epsilon"), "1e-07");
  EXPECT_TRUE(c.recompute.full);
  expect_notes(
      c, {"job {", "model.flavor", "converters", "optimizer.lr", "training.dataset", "parallelism.tensor_parallel_degree",
          "context_parallel_degree", "enable_async_tensor_parallel true: no effect", "activation_checkpoint.mode", "compile {",
          "recipe_name", "filter_fqns", "checkpoint.enable true: no effect", "checkpoint.folder"});
}

TEST_F(Torchtitan, DegreesAreStrategies) {
  const auto strategies = [&](const std::string& parallelism) { return text_of(config_of(file(parallelism, none)).strategies); };
  EXPECT_EQ(strategies("data_parallel_shard_degree = -1"), "zero3-offload");
  EXPECT_EQ(strategies("data_parallel_shard_degree = -1\ntensor_parallel_degree = 8"), "tp-sp=8+zero3-offload");
  EXPECT_EQ(strategies("data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 4"), "ddp=4");
  EXPECT_EQ(strategies("data_parallel_shard_degree = 1\ncontext_parallel_degree = 8"), "cp=8+zero3-offload=1")
      << "parameters are divided over ranks of cp";
  EXPECT_EQ(strategies("data_parallel_shard_degree = 2\npipeline_parallel_degree = 2"), "zero3-offload=2+pipeline=2");
  EXPECT_EQ(strategies("data_parallel_shard_degree = 8\nexpert_parallel_degree = 4"), "ep=4+zero3-offload=2")
      << "experts' ranks are some of those that share parameters";
  const std::string eight = "data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n";
  EXPECT_EQ(strategies(eight + "expert_parallel_degree = 4"), "tp-sp=2+ep=2+zero3-offload=2") << "ranks of tp-sp among those of experts";
  EXPECT_EQ(strategies(eight + "expert_parallel_degree = 2"), "tp-sp=2+zero3-offload=4");
  EXPECT_EQ(strategies(eight + "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 2"), "tp-sp=2+ep=4+zero3-offload=1");
  expect_refused(file(eight + "expert_parallel_degree = 3"), "which tensor_parallel_degree 2 does not divide");
  expect_refused(file(eight + "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 3"), "it may be 1 or as tensor_parallel_degree, 2");
  expect_refused(file("data_parallel_shard_degree = 2\nexpert_parallel_degree = 4"),
                 "does not divide data_parallel_shard_degree 2");
  const std::string context = "data_parallel_shard_degree = 4\ncontext_parallel_degree = 4\n";
  EXPECT_EQ(strategies(context + "expert_parallel_degree = 8"), "cp=4+ep=2+zero3-offload=2") << "ranks of cp among those of experts";
  EXPECT_EQ(option(config_of(file(context + "expert_parallel_degree = 8", none)), "cp", "experts"), "divided");
  EXPECT_EQ(config_of(file(context + "expert_parallel_degree = 8", none)).ranks, 16);
  EXPECT_EQ(strategies(context + "expert_parallel_degree = 4"), "cp=4+zero3-offload=4");
  expect_refused(file(context + "expert_parallel_degree = 2"), "which context_parallel_degree 4 does not divide");
  expect_refused(file("data_parallel_shard_degree = 0"), "data_parallel_shard_degree is 0");
  expect_refused(file("tensor_parallel_degree = 0"), "whole number from 1");
}

TEST_F(Torchtitan, MicroBatchesOfAPipelineArePartsOfTheLocalBatch) {
  RunConfig c = config_of(file(
      "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"\npipeline_parallel_microbatch_size = 2",
      none));
  EXPECT_EQ(c.batch, 2);
  EXPECT_EQ(c.accumulation, 2);
  EXPECT_EQ(option(c, "pipeline", "schedule"), "interleaved");
  EXPECT_EQ(option(c, "pipeline", "chunks"), "2");
  EXPECT_NE(option(c, "zero3-offload", "max-reuse-distance"), "0") << "beside a pipeline parameters stay whole";
  c = config_of(file(
      "pipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"",
      none));
  EXPECT_EQ(option(c, "pipeline", "chunks"), "2") << "6 layers and 2 for the ends make 4 stages";
  expect_refused(file("pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"ZBVZeroBubble\""), "ZBVZeroBubble");
  expect_refused(file("pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 3"), "does not divide the batch 4");
}

/// build_lr_schedulers of torchtitan/components/lr_scheduler.py at 238fa99.
double torchtitan_rate(int step, int warmup, int total, int decay, const std::string& type, double least) {
  if (step < warmup) return (step + 1.0) / warmup;
  const int stable = total + 1 - warmup - decay;
  if (step < warmup + stable) return 1;
  const double progress = (step + 1.0 - (warmup + stable)) / decay;
  const double left = type == "linear" ? 1 - progress
                      : type == "sqrt" ? 1 - std::sqrt(progress)
                                       : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return least + (1 - least) * left;
}

TEST_F(Torchtitan, RatesAreThoseOfTorchtitan) {
  struct Case {
    const char* more;
    int warmup, decay;
    const char* type;
    double least;
  };
  const Case cases[] = {
      {"warmup_steps = 5", 5, 15, "linear", 0},
      {"warmup_steps = 3\ndecay_ratio = 0.4\ndecay_type = \"cosine\"\nmin_lr_factor = 0.1", 3, 8, "cosine", 0.1},
      {"warmup_steps = 0\ndecay_ratio = 0.3\ndecay_type = \"sqrt\"", 0, 6, "sqrt", 0},
      {"warmup_steps = 100", 20, 0, "linear", 0},
      {"warmup_steps = 10\ndecay_ratio = 0.8", 10, 10, "linear", 0}};
  for (const Case& test : cases) {
    const RunConfig c = config_of(file("", "[lr_scheduler]\n" + std::string(test.more) + "\n[optimizer]\nlr = 2e-3\n"));
    for (int step = 0; step < 20; ++step)
      EXPECT_NEAR(rate(c, step), 2e-3 * torchtitan_rate(step, test.warmup, 20, test.decay, test.type, test.least), 1e-12)
          << test.more << ", step " << step;
  }
  const RunConfig shorter = config_of(file("", "[lr_scheduler]\nwarmup_steps = 2\ntotal_steps = 40\n[optimizer]\nlr = 1\n"));
  for (int step = 0; step < 20; ++step) EXPECT_NEAR(rate(shorter, step), torchtitan_rate(step, 2, 40, 38, "linear", 0), 1e-12);
}

TEST_F(Torchtitan, TheLayoutBefore) {
  const RunConfig c = config_of(R"([model]
name = "llama2"
flavor = "7B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
batch_size = 8
seq_len = 2048
warmup_steps = 5
steps = 20
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
compile = false
[experimental]
pipeline_parallel_degree = 4
[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'
[float8]
enable_float8_linear = false
[checkpoint]
enable_checkpoint = false
)");
  EXPECT_EQ(c.model, "llama-2-7b");
  EXPECT_EQ(text_of(c.strategies), "tp-sp=2+zero3-offload+pipeline=4");
  EXPECT_EQ(c.batch, 2) << "as many micro-batches as stages";
  EXPECT_EQ(c.accumulation, 4);
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(what_text(c.recompute), "rms_norm,swiglu,rope");
  // linear_warmup_linear_decay of torchtitan/optimizer.py at 6a6f755.
  for (int step = 0; step < 20; ++step)
    EXPECT_NEAR(rate(c, step), 3e-4 * (step < 5 ? (step + 1.0) / 6 : 1 - (step - 5) / 15.0), 1e-12) << step;
}

TEST_F(Torchtitan, WhichLayoutItIsFollowsFromItsKeys) {
  const std::string head =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nmode = \"none\"\n[training]\nsteps = 9\n";
  EXPECT_EQ(config_of(head).model, "llama-3.1-8b");
  EXPECT_EQ(config_of(head + "warmup_steps = 3\n").model, "llama-3-8b");
  const RunConfig between = config_of(head + "warmup_steps = 3\n[parallelism]\n");
  EXPECT_EQ(between.model, "llama-3.1-8b");
  EXPECT_EQ(between.schedule, "linear") << "the rates of that time";
}

TEST_F(Torchtitan, ModelsAreByFlavor) {
  const ModelSizes debug = sizes(config_of(file("")));
  EXPECT_EQ(debug.layers, 6);
  EXPECT_EQ(debug.hidden, 256);
  EXPECT_EQ(debug.ffn, 768);
  EXPECT_EQ(debug.vocabulary, 2048);
  const auto flavor = [](const std::string& model, const std::string& flavor) {
    return "[model]\nname = \"" + model + "\"\nflavor = \"" + flavor +
           "\"\n[training]\n[parallelism]\n[activation_checkpoint]\nmode = \"none\"\n";
  };
  EXPECT_EQ(sizes(config_of(flavor("llama3", "405B"))).parameters, 405'853'388'800) << "as its authors count";
  EXPECT_EQ(config_of(flavor("qwen3", "32B")).model, "qwen3-32b");
  const ModelSizes experts = sizes(config_of(flavor("qwen3", "debugmodel_moe")));
  EXPECT_EQ(experts.experts, 64);
  const std::string converted = "[model]\nname = \"qwen3\"\nflavor = \"debugmodel_moe\"\nconverters = [\"float8\"]\n"
                                "[training]\n[parallelism]\n[activation_checkpoint]\nmode = \"none\"\n";
  EXPECT_EQ(option(config_of(converted), "fp8", "except"), "*.experts.*") << "the converter of linears leaves experts in bf16";
  EXPECT_EQ(option(config_of(converted + "[float8]\nfilter_fqns = [\"wk\"]\n"), "fp8", "except"), "*.experts.*,*k_proj.weight");
  expect_refused(flavor("deepseek_v3", "16B"), "known are llama3 debugmodel, llama3 8B");
  expect_refused(flavor("llama3", "9B"), "Or give --model");
  EXPECT_EQ(config_of(flavor("deepseek_v3", "16B"), {"--model=llama-tiny"}).model, "llama-tiny")
      << "the command line goes before the file";
}

TEST_F(Torchtitan, ActivationsAreMadeAgainAsAsked) {
  const auto asked = [&](const std::string& table) {
    const RunConfig c = config_of(file("", "[activation_checkpoint]\n" + table));
    return what_text(c.recompute) + " " + layers_text(c.recompute);
  };
  EXPECT_EQ(asked("mode = \"none\""), "none ");
  EXPECT_EQ(asked("mode = \"selective\"\nselective_ac_option = \"op\""), "rms_norm,swiglu,rope ");
  EXPECT_EQ(asked("mode = \"selective\"\nselective_ac_option = \"2\""), "full 0-2") << "half of six layers";
  EXPECT_EQ(asked("mode = \"selective\"\nselective_ac_option = 1"), "full ");
  EXPECT_EQ(asked(""), "full 0-2") << "the default is every second";
  expect_refused(file("", "[activation_checkpoint]\nmode = \"memory_budget\""),
                 "activation_checkpoint.mode is \"memory_budget\"");
  expect_refused(file("pipeline_parallel_degree = 2"), "beside a pipeline");
}

TEST_F(Torchtitan, DtypesAreHonoured) {
  EXPECT_EQ(config_of(file("")).precision, "bf16");
  EXPECT_EQ(config_of(file("", "", "mixed_precision_param = \"float32\"")).precision, "fp32");
  const RunConfig c = config_of(file("", "", "dtype = \"bfloat16\"\nenable_cpu_offload = true"));
  EXPECT_EQ(option(c, "bf16", "states"), "bf16");
  EXPECT_EQ(option(c, "zero3-offload", "offload-optimizer.device"), "cpu");
  EXPECT_EQ(option(c, "zero3-offload", "offload-optimizer.update"), "cpu");
  expect_refused(file("", "", "mixed_precision_reduce = \"bfloat16\""), "mixed_precision_reduce is \"bfloat16\"");
}

TEST_F(Torchtitan, WhatIsNotDoneHereIsRefused) {
  expect_refused(file("tensor_paralel_degree = 2"), "\"parallelism.tensor_paralel_degree\" is not known");
  expect_refused(file("", "[optimizer]\nname = \"Adam\""), "optimizer.name is \"Adam\"");
  expect_refused(file("", "[optimizer]\nearly_step_in_backward = true"), "early_step_in_backward");
  expect_refused(file("", "[fault_tolerance]\nenable = true"), "fault_tolerance.enable");
  expect_refused(file("", "[model2]\nx = 1"), "\"model2\" is not known");
  expect_refused(file("", "", "steps = 5"), "line 8");
  expect_refused(file("", "", "max_norm = \"1\""), "training.max_norm is \"1\"; it must be a number");
  expect_refused(file("context_parallel_rotate_method = \"ring\""), "context_parallel_rotate_method is \"ring\"");
}

TEST_F(Torchtitan, ValuesAreReplacedAndTheCommandLineGoesFirst) {
  RunConfig c = config_of(file("tensor_parallel_degree = 2"), {"--from-set=parallelism.tensor_parallel_degree=4", "--from-set",
                                                               "training.steps=7", "--clip=2", "--batch=1"});
  EXPECT_EQ(text_of(c.strategies), "tp-sp=4+zero3-offload");
  EXPECT_EQ(c.steps, 7);
  EXPECT_EQ(c.optimizer.max_norm, 2);
  EXPECT_EQ(c.batch, 1);
  EXPECT_THAT(c.notes, Contains(HasSubstr("4 (--from-set) in place of 2")));
  EXPECT_THAT(c.notes, Contains(HasSubstr("local_batch_size 4: --batch 1 is given and goes before the file")));
  c = config_of(file("tensor_parallel_degree = 2"), {"--strategy=zero2", "--global-batch=8"});
  EXPECT_EQ(text_of(c.strategies), "zero2");
  EXPECT_FALSE(c.plugin_options.contains("zero3-offload")) << "what it says of other strategies is dropped";
  EXPECT_THAT(c.notes, Contains(HasSubstr("'zero3-offload' has no effect beside the command line's choices")));
  c = config_of(file("tensor_parallel_degree = 2"), {"--strategy=from"});
  EXPECT_EQ(text_of(c.strategies), "tp-sp=2+zero3-offload") << "the file's own, as a row of a comparison";
  EXPECT_THROW(make_config(parse_run({"--model=llama-tiny", "--from-set=a=1"}), host_), UsageError);
  EXPECT_THROW(make_config(parse_run({"--model=llama-tiny", "--from=a", "--deepspeed-config=b"}), host_), UsageError);
}

}  // namespace
}  // namespace consist
