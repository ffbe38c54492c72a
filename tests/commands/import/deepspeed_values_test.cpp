// Values of a DeepSpeed JSON: DeepSpeed's defaults, its schedulers, its forms of writing, and numbers that are none.
#include <sys/stat.h>

#include "tests/commands/import/deepspeed_case.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class DeepspeedValues : public test::DeepspeedTest {
 protected:
  const std::map<std::string, std::string>& options_of(const std::string& file, const char* plugin) {
    last_ = config_of_text(file);
    return last_.plugin_options.at(plugin);
  }
  static std::string optimizer(const std::string& params, const std::string& type = "AdamW") {
    return R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
  }
  static std::string scheduler(const std::string& type, const std::string& params, const std::string& rate = "1e-3") {
    return R"({"optimizer": {"type": "Adam", "params": {"lr": )" + rate + R"(}}, "scheduler": {"type": ")" + type +
           R"(", "params": {)" + params + "}}}";
  }
  std::vector<double> rates(const std::string& file) {
    const RunConfig config = config_of_text(file);
    const auto schedule = host_.make<Schedule>("schedule", config.schedule, config.plugin_options.at(config.schedule));
    std::vector<double> rates;
    for (int done = 0; done < 12; ++done) rates.push_back(schedule->rate(done, config.steps, config.learning_rate));
    return rates;
  }
  void expect_taken(const std::string& file, const char* why = "", const std::vector<std::string>& words = {}) {
    try {
      config_of_text(file, words);
    } catch (const Error& error) {
      ADD_FAILURE() << file << " is refused: " << error.what() << "; " << why;
    }
  }

 private:
  RunConfig last_;
};

/// deepspeed/runtime/constants.py, ops/adam/fused_adam.py and runtime/zero/config.py of DeepSpeed 0.19.6; clipping was off by
/// default up to 0.19.2, when the files were written that people have.
TEST_F(DeepspeedValues, KeysThatAreAbsentHaveDeepspeedsDefaults) {
  const std::string file = R"({"optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 2}})";
  RunConfig c = config_of_text(file);
  EXPECT_EQ(c.optimizer.max_norm, 0);
  EXPECT_EQ(c.learning_rate, 1e-3);
  const auto& adamw = c.plugin_options.at("adamw");
  EXPECT_EQ(adamw.at("beta1"), "0.9");
  EXPECT_EQ(adamw.at("beta2"), "0.999");
  EXPECT_EQ(adamw.at("epsilon"), "1e-8");
  EXPECT_EQ(c.optimizer.weight_decay, 0);
  EXPECT_EQ(c.plugin_options.at("zero2").at("overlap-comm"), "false");
  EXPECT_EQ(c.plugin_options.at("zero2").at("reduce-bucket-size"), "500000000");
  EXPECT_EQ(c.plugin_options.at("zero2").at("allgather-bucket-size"), "500000000");
  EXPECT_EQ(c.plugin_options.at("zero2").at("sub-group-size"), "1000000000");
  EXPECT_THAT(c.notes, Contains(AllOf(HasSubstr("absent"), HasSubstr("--clip 0 (gradient_clipping"), HasSubstr("--adamw.beta2 0.999"),
                                      HasSubstr("--weight-decay 0 (optimizer.params.weight_decay)"),
                                      HasSubstr("--zero2.overlap-comm false (zero_optimization.overlap_comm)"))));
  EXPECT_EQ(config_of_text(optimizer(R"("torch_adam": true)")).optimizer.weight_decay, 0.01) << "of torch.optim.AdamW";
  EXPECT_EQ(options_of(R"({"zero_optimization": {"stage": 3}})", "zero3-offload").at("overlap-comm"), "true");

  c = config_of_text(file, {"--clip=2", "--adamw.beta2=0.95", "--zero2.overlap-comm=true"});
  EXPECT_EQ(c.optimizer.max_norm, 2) << "what the command line gives stays";
  EXPECT_EQ(c.plugin_options.at("adamw").at("beta2"), "0.95");
  EXPECT_EQ(c.plugin_options.at("zero2").at("overlap-comm"), "true");

  const OptimizerSettings own;
  EXPECT_FALSE(config_of_text("{}").plugin_options.contains("adamw")) << "without the block the program brings an optimizer to DeepSpeed";
  c = config_of_text(R"({"gradient_clipping": "auto", "optimizer": {"type": "AdamW",
                         "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"}}})");
  EXPECT_EQ(c.optimizer.max_norm, own.max_norm) << "auto: the program's";
  EXPECT_FALSE(c.plugin_options.contains("adamw") && c.plugin_options.at("adamw").contains("beta2"));
  EXPECT_EQ(c.learning_rate, RunConfig().learning_rate);
}

TEST_F(DeepspeedValues, SchedulersGiveTheRatesOfDeepspeed) {
  const auto near = [](const std::vector<double>& rates) { return ::testing::Pointwise(::testing::DoubleNear(1e-12), rates); };
  const std::string warmup = R"("warmup_min_lr": 1e-4, "warmup_max_lr": 1e-3, "warmup_num_steps": 4)";
  // Run with DeepSpeed 0.19.6's classes on these parameters.
  EXPECT_THAT(rates(scheduler("WarmupLR", warmup)),
              near({1e-4, 1e-4, 5.5e-4, 0.00081323312532452041, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3}));
  EXPECT_THAT(rates(scheduler("WarmupDecayLR", warmup + R"(, "total_num_steps": 10)")),
              near({1e-4, 1e-4, 5.5e-4, 0.00081323312532452041, 1e-3, 1e-3, 8.5e-4, 7e-4, 5.5e-4, 4e-4, 2.5e-4, 1e-4}));
  EXPECT_THAT(
      rates(scheduler("WarmupCosineLR", R"("warmup_num_steps": 4, "total_num_steps": 10, "cos_min_ratio": 0.1,
                                                   "warmup_type": "linear")")),
      near({0, 0, 2.5e-4, 5e-4, 7.5e-4, 0.00093971143170299744, 7.75e-4, 5.5e-4, 3.25e-4, 0.00016028856829700258, 1e-4, 1e-4}));
  // Defaults: WarmupLR rises to the optimizer's rate, WarmupDecayLR to 0.001, by the logarithm, from 0, in 1000 steps.
  const RunConfig by_default = config_of_text(scheduler("WarmupLR", "", "5e-4"));
  EXPECT_EQ(by_default.learning_rate, 5e-4);
  EXPECT_EQ(by_default.plugin_options.at("constant"), (std::map<std::string, std::string>{{"warmup", "1000"}, {"warmup-shape", "log"}, {"warmup-from", "0"}, {"counting", "deepspeed"}}));
  EXPECT_EQ(config_of_text(scheduler("WarmupDecayLR", R"("total_num_steps": 10)", "5e-4")).learning_rate, 1e-3);
  EXPECT_EQ(config_of_text(scheduler("WarmupLR", R"("warmup_num_steps": 1)")).plugin_options.at("constant").at("warmup"), "2") << "the least there";

  // Hugging Face's files: what is "auto" follows the command line.
  const RunConfig c = config_of_text(scheduler("WarmupDecayLR", R"("warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                                   "warmup_num_steps": "auto", "total_num_steps": "auto")"),
                                     {"--steps=20", "--linear.warmup=5"});
  EXPECT_EQ(c.plugin_options.at("linear").at("warmup"), "5");
  EXPECT_EQ(c.steps, 20);
  EXPECT_EQ(c.plugin_options.at("linear").at("final-rate"), "0");
  expect_text_refused(scheduler("OneCycle", R"("cycle_min_lr": 0)"), "scheduler.params.cycle_min_lr\" is not known");
  expect_text_refused(R"({"scheduler": {"type": "OneCycle"}})", "it may be WarmupLR, WarmupDecayLR or WarmupCosineLR");
  expect_text_refused(scheduler("WarmupLR", R"("warmup_type": "cubic")"), "it may be \"log\" or \"linear\"");
  expect_text_refused(scheduler("WarmupLR", R"("total_num_steps": 5)"), "which WarmupLR does not have");
  expect_text_refused(scheduler("WarmupLR", R"("last_batch_iteration": 5)"), "last_batch_iteration is 5");
  expect_text_refused(scheduler("WarmupCosineLR", R"("warmup_max_lr": 1)"), "which WarmupCosineLR does not have");
  expect_text_refused(scheduler("WarmupLR", R"("warmup_min_lr": 1e-4)"), "--constant.warmup-from 1e-5 is given", {"--constant.warmup-from=1e-5"});
}

TEST_F(DeepspeedValues, NumbersAreWholeAndInRange) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"gradient_accumulation_steps": 4294967297})", "4294967297; it must be a whole number from 1 to 65536"},
      {R"({"gradient_accumulation_steps": 2.7})", "2.7; it must be a whole number"},
      {R"({"train_micro_batch_size_per_gpu": 0})", "whole number from 1"},
      {R"({"train_batch_size": 18446744073709551615})", "whole number from 1"},
      {R"({"train_batch_size": "8"})", "must be a number"},
      {R"({"zero_optimization": {"stage": 2.7}})", "2.7; it must be a whole number from 0 to 3"},
      {R"({"zero_optimization": {"stage": 4294967298}})", "whole number from 0 to 3"},
      {R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 1.5}})", "whole number from 0"},
      {R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": -1}})", "whole number from 0"},
      {R"({"zero_optimization": {"stage": 2, "overlap_comm": 1}})", "must be true, false"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2.7}}})", "2.7; it must be a whole number"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "x"}}})", "must be a number"},
      {R"({"tensor_parallel": {"autotp_size": 1e9}})", "whole number from 0 to 65536"}};
  for (const auto& [file, says] : cases) expect_text_refused(file, says);
  EXPECT_EQ(
      options_of(R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 9223372036854775807}})", "zero3-offload")
          .at("max-live-parameters"),
      "1000000000000000")
      << "sys.maxsize is no limit";
}

TEST_F(DeepspeedValues, SizesOfZeroGiveEachParameterItsOwnMessage) {
  const auto& options = options_of(R"({"zero_optimization": {"stage": 3, "sub_group_size": 0, "reduce_bucket_size": 0,
      "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0, "max_live_parameters": 0, "max_reuse_distance": 0}})",
                                   "zero3-offload");
  for (const char* option : {"sub-group-size", "reduce-bucket-size", "prefetch-bucket-size", "param-persistence-threshold",
                             "max-live-parameters", "max-reuse-distance"}) {
    EXPECT_EQ(options.at(option), "0") << option;
  }
  EXPECT_NO_THROW(host_.make<ParallelStrategy>("strategy", "zero3-offload", options));
  EXPECT_NO_THROW(
      host_.make<ParallelStrategy>("strategy", "zero2", {{"allgather-bucket-size", "0"}, {"reduce-bucket-size", "0"}}));
}

TEST_F(DeepspeedValues, AdamHasTheFormsOfDeepspeed) {
  for (const char* type : {"AdamW", "adamw", "ADAM", "Adam", "FusedAdam"}) expect_taken(optimizer("", type));
  expect_text_refused(optimizer("", "Lamb"), "optimizer.type is \"Lamb\"");
  expect_text_refused(R"({"optimizer": {"type": 3}})", "optimizer.type is 3");
  EXPECT_EQ(config_of_text(optimizer(R"("bias_correction": false)")).plugin_options.at("adamw").at("bias-correction"), "false");
  EXPECT_EQ(config_of_text(optimizer(R"("bias_correction": true)")).plugin_options.at("adamw").at("bias-correction"), "true");
  expect_taken(optimizer(R"("adam_w_mode": false, "weight_decay": 0.1)", "AdamW"), "DeepSpeed does not listen to it");
  expect_taken(optimizer(R"("adam_w_mode": false, "weight_decay": 0)", "Adam"), "both are the same");
  expect_text_refused(optimizer(R"("adam_w_mode": false, "weight_decay": 0.1)", "Adam"), "adam_w_mode is false");
  expect_text_refused(optimizer(R"("max_grad_norm": 1)"), "gradient_clipping");
  expect_text_refused(optimizer(R"("amsgrad": true)"), "optimizer.params.amsgrad");
}

TEST_F(DeepspeedValues, LionAndMuonAreTheOptimizersOfThatName) {
  const RunConfig fused = config_of_text(optimizer(R"("lr": 1e-4, "weight_decay": 0.1)", "Lion"));
  EXPECT_EQ(fused.optimizer_plugin, "lion");
  EXPECT_EQ(fused.plugin_options.at("lion"), (std::map<std::string, std::string>{{"beta1", "0.9"}, {"beta2", "0.99"}}));
  EXPECT_EQ(fused.learning_rate, 1e-4);
  EXPECT_EQ(fused.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config_of_text(optimizer(R"("betas": [0.8, 0.9])", "FusedLion")).plugin_options.at("lion").at("beta1"), "0.8");
  EXPECT_EQ(config_of_text(optimizer("", "DeepSpeedCPULion")).plugin_options.at("lion").at("beta2"), "0.999");

  const RunConfig muon = config_of_text(optimizer(R"("lr": 2e-3, "momentum": 0.9, "ns_method": "gram")", "Muon"));
  EXPECT_EQ(muon.optimizer_plugin, "muon");
  EXPECT_EQ(muon.plugin_options.at("muon").at("momentum"), "0.9");
  EXPECT_EQ(muon.plugin_options.at("muon").at("scale"), "original");
  EXPECT_EQ(muon.plugin_options.at("muon").at("epsilon"), "1e-10");
  expect_taken(optimizer(R"("muon_lr": 1e-3, "adam_lr": 1e-3)", "Muon"));
  expect_text_refused(optimizer(R"("muon_lr": 1e-2, "adam_lr": 1e-3)", "Muon"), "have one learning rate here");
  expect_text_refused(R"({"optimizer": {"type": "Muon"}})", "optimizer.params.lr is absent");
  expect_text_refused(optimizer(R"("momentum": 0.9)", "AdamW"), "is no parameter of DeepSpeed's adamw");
  expect_text_refused(optimizer(R"("adam_w_mode": true)", "Lion"), "is no parameter of DeepSpeed's lion");
}

TEST_F(DeepspeedValues, GradientsAddUpInTheDtypeThatIsAskedFor) {
  const std::string bf16 = R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}})";
  EXPECT_EQ(options_of(bf16, "bf16").at("gradients"), "bf16");
  EXPECT_EQ(config_of_text(bf16, {"--precision=fp8"}).plugin_options.at("fp8").at("gradients"), "bf16");
  expect_text_refused(bf16, "--bf16.gradients f32 is given", {"--bf16.gradients=f32"});
  expect_text_refused(R"({"data_types": {"grad_accum_dtype": "bf16"}})", "with --precision fp32");
  expect_text_refused(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}})",
                      "grad_accum_dtype is \"fp16\"");
  EXPECT_THAT(config_of_text(R"({"bf16": {"enabled": true}})").notes,
              Contains(HasSubstr("grad_accum_dtype is absent: --bf16.gradients f32")));
  expect_text_refused(R"({"fp16": {"enabled": true}})",
                      "fp16.enabled is true: training in fp16, with a scaled loss, is not done");
}

TEST_F(DeepspeedValues, TensorParallelismAndOldKeys) {
  const std::string four = R"({"zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 4}})";
  EXPECT_EQ(text_of(config_of_text(four, {"--ranks=8"}).strategies), "tp-sp=4+zero2");
  EXPECT_EQ(text_of(config_of_text(four, {"--ranks=8", "--strategy=tp-sp=4+zero2=2"}).strategies), "tp-sp=4+zero2=2");
  expect_text_refused(four, "autotp_size 4 is the strategy tp-sp=4", {"--strategy=tp-sp=2+zero2"});
  EXPECT_EQ(text_of(config_of_text(R"({"tensor_parallel": {"autotp_size": 1}})").strategies), "ddp");
  EXPECT_EQ(options_of(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})", "zero2").at("offload-optimizer.device"),
            "cpu");
  EXPECT_EQ(options_of(R"({"zero_optimization": {"stage": 3, "cpu_offload_params": true}})", "zero3-offload")
                .at("offload-param.device"),
            "cpu");
  EXPECT_EQ(options_of(R"({"zero_optimization": true})", "zero2").at("stage"), "1");
}

TEST_F(DeepspeedValues, MicsDividesWithinGroups) {
  const std::string four = R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}})";
  EXPECT_EQ(text_of(config_of_text(four, {"--ranks=8"}).strategies), "zero3-offload=4+ddp");
  EXPECT_EQ(text_of(config_of_text(four, {"--ranks=8", "--strategy=ddp=2+zero3-offload=4"}).strategies), "ddp=2+zero3-offload=4");
  expect_text_refused(four, "mics_shard_size 4 is the strategy zero3-offload=4", {"--ranks=8", "--strategy=zero3-offload"});
  expect_text_refused(four, "mics_shard_size 4 is the strategy ddp", {"--ranks=4", "--strategy=zero3-offload=4"});
  expect_text_refused(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 0}})", "mics_shard_size is 0");
  EXPECT_EQ(text_of(config_of_text(R"({"zero_optimization": {"stage": 3, "mics_shard_size": -1}})").strategies), "zero3-offload");
  const RunConfig second = config_of_text(R"({"zero_optimization": {"stage": 2, "mics_shard_size": 4}})");
  EXPECT_EQ(text_of(second.strategies), "zero2");
  EXPECT_THAT(second.notes, Contains(HasSubstr("mics_shard_size 4: no effect at stage 2")));
  expect_text_refused(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})", "zero_hpz_partition_size is 4");
}

TEST_F(DeepspeedValues, CheckpointsOfActivationsOnTheHost) {
  const char* const text = R"({"activation_checkpointing": {"cpu_checkpointing": true}})";
  const auto offload_of = [&](const std::vector<std::string>& options) { return text_of(config_of_text(text, options).offload); };
  EXPECT_EQ(offload_of({"--recompute=full"}), "all");
  EXPECT_EQ(offload_of({"--recompute=full", "--offload-activations=0-1"}), "0-1");
  EXPECT_EQ(offload_of({}), "none");
  EXPECT_THAT(config_of_text(text, {}).notes, Contains(HasSubstr("cpu_checkpointing true: no effect without --recompute")));
  expect_text_refused(R"({"activation_checkpointing": {"cpu_checkpointing": 3}})", "cpu_checkpointing is 3");
}

TEST_F(DeepspeedValues, FilesAreReadAsDeepspeedReadsThem) {
  const RunConfig c = config_of_text(R"(# one GPU
{
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8,},  // elements
  "optimizer": null, "scheduler": null, /* the Trainer's */
  "activation_checkpointing": {"partition_activations": true, "number_checkpoints": null},
  "_comment": "anything",
  "gradient_clipping": 0.5,
}
)");
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  EXPECT_EQ(c.plugin_options.at("zero2").at("reduce-bucket-size"), "200000000");
  EXPECT_THAT(c.notes, Contains("deepspeed optimizer null: as if it were absent"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("deepspeed _comment \"anything\": a remark")));
  expect_text_refused(R"({"gradient_clipping": 1, "zero_optimization": {"stage": 1, "stage": 2}})",
                      "has \"zero_optimization.stage\" twice");
  expect_text_refused("{\"gradient_clipping\": }", "is no valid JSON: parse error at line 1, column 23");
}

TEST_F(DeepspeedValues, HostileFilesAreRefusedAtOnce) {
  const std::string deep(100'000, '[');
  for (const char* key : {"fp16", "zero_optimization", "train_batch_size", "optimizer", "scheduler", "gradient_clipping", "amp",
                          "communication_data_type", "no_such_key"}) {
    expect_text_refused("{\"" + std::string(key) + "\": " + deep, "nested deeper than the 32 levels");
    expect_text_refused("{\"" + std::string(key) + "\": " + deep.substr(0, 31) + std::string(31, ']') + "}", "ds.json");
  }
  expect_text_refused("{\"\\u001b[2J\": 1}", "\"\\u001b[2J\" is not known");
  expect_text_refused(R"({"communication_data_type": "\u001b]0;x\u0007"})", "\\u001b]0;x\\u0007");
  expect_text_refused("{\"" + std::string(500'000, 'k') + "\": 1}", "is not known");
  expect_text_refused("{\"fp16\": {\"enabled\": \"" + std::string(500'000, 'v') + "\"}}", "fp16.enabled is \"vvv");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder_ / "pipe", std::string("/dev/zero")}) EXPECT_THROW(config_of(path, {}), SystemError);
}

// The keys of files as they are found in public repositories (read in November 2026), in this test's own files: which are taken,
// and what the others lack.

struct PublicFile {
  const char* files;
  std::vector<std::string> blocks;
  const char* lacks = "";  // nothing: taken
};

const std::string trainer = R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 2000,
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "wall_clock_breakdown": false, "bf16": {"enabled": "auto"})";
const std::string fp16 = R"("fp16": {"enabled": "auto", "auto_cast": false, "loss_scale": 0, "initial_scale_power": 16,
    "hysteresis": 2, "loss_scale_window": 1000, "min_loss_scale": 1})";
const std::string adamw =
    R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}})";
std::string warmup(const std::string& type, const std::string& more) {
  return R"("scheduler": {"type": ")" + type +
         R"(", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto")" + more + "}}";
}
std::string stage2(const std::string& more, const char* stage = "2") {
  return R"("zero_optimization": {"stage": )" + std::string(stage) +
         R"(, "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true,
            "reduce_bucket_size": 2e8, "contiguous_gradients": true)" +
         more + "}";
}
std::string stage3(const std::string& more, const char* bucket = "\"auto\"") {
  return R"("zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": )" +
         std::string(bucket) + R"(, "stage3_prefetch_bucket_size": )" + bucket +
         R"(, "stage3_param_persistence_threshold": "auto")" + more + "}";
}
const std::string sizes = R"(, "sub_group_size": 1e9, "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true)";
const std::string host = R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "offload_param": {"device": "cpu"})";
const std::string host_optimizer = R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true})";
const std::string real_optimizer =
    R"("optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}})";

std::vector<PublicFile> public_files() {
  return {
      {"LLaVA zero2, LMFlow zero2_no_offload, LLaMA-Factory z2", {trainer, fp16, stage2("")}},
      {"LLaVA zero3, LLaMA-Factory z3, LMFlow zero3_no_offload", {trainer, fp16, stage3(sizes)}},
      {"LLaVA zero3_offload", {trainer, fp16, adamw, warmup("WarmupLR", ""), stage3(sizes + host)}},
      {"alpaca, open-instruct stage3_offloading",
       {trainer, adamw, warmup("WarmupDecayLR", R"(, "total_num_steps": "auto")"), stage3(sizes + host)}},
      {"transformers' tests ds_config_zero2, Qwen zero2", {trainer, fp16, adamw, warmup("WarmupLR", ""), stage2(host_optimizer)}},
      {"accelerate's tests ds_config_zero3",
       {trainer, fp16, R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": true,
                          "adam_w_mode": true}})",
        warmup("WarmupLR", ""), stage3(sizes + host)}},
      {"axolotl zero3_bf16_cpuoffload_all",
       {trainer, R"("zero_force_ds_cpu_optimizer": false, "zero_allow_untested_optimizer": true)",
        stage3(R"(, "sub_group_size": 0, "max_live_parameters": 0, "max_reuse_distance": 0,
                  "gather_16bit_weights_on_model_save": true)" +
               host)}},
      {"axolotl zero1_torch_compile", {trainer, stage2("", "1"), R"("compile": {"disable": false, "backend": "inductor"})"}},
      {"LLaMA-Factory z0, LMFlow zero0", {trainer, fp16, stage2(R"(, "round_robin_gradients": true)", "0")}},
      {"LLaMA-Factory z2_autotp, DeepSpeedExamples' tensor_parallel",
       {trainer, fp16, R"("_comment": "models")", stage2(""), R"("tensor_parallel": {"autotp_size": 2})"}},
      {"LLaMA-Factory z3_fp8",
       {trainer, R"("comms_config": {"verbose": false}, "monitor_config": {"enabled": true, "csv_monitor": {"enabled": false}})",
        stage3(R"(, "offload_optimizer": {"device": "cpu", "pin_memory": false})", "12845056")}},
      {"FastChat s2", {R"("train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"})", stage2(host_optimizer)}},
      {"transformers' tests ds_config_zero3, in bf16",
       {stage3(R"(, "sub_group_size": 1e14, "stage3_gather_fp16_weights_on_model_save": true)", "0"), real_optimizer,
        R"("scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-5, "warmup_num_steps": 500}})"}},
      {"DeepSpeed's tests/torch_compile",
       {R"("train_batch_size": 8, "prescale_gradients": false, "bf16": {"enabled": true})", real_optimizer,
        R"("zero_optimization": {"stage": 3, "reduce_scatter": true, "overlap_comm": false, "contiguous_gradients": false})"}},
      {"DeepSpeedExamples' imagenet and pipeline_parallelism",
       {R"("train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": false}, "gradient_clipping": 0,
           "cuda_visible_devices": 0, "zero_allow_untested_optimizer": true)",
        real_optimizer}},
      {"DeepSpeed's ds_config_perf_bs16, in bf16", {R"("train_batch_size": 16, "disable_allgather": true)", stage2("", "1")}},
      {"accelerate's templates", {R"("fp16": {"enabled": true, "loss_scale": 0})", stage2("")}, "fp16.enabled is true"},
      {"DeepSpeedExamples' llama_70b_multi_node", {R"("optimizer": {"type": "OneBitAdam"})"}, "optimizer.type is \"OneBitAdam\""},
      {"DeepSpeedExamples' zero3_nvme_offload",
       {stage3(R"(, "offload_param": {"device": "nvme", "nvme_path": "/x"})")},
       "offload_param.device is \"nvme\""},
      {"DeepSpeedExamples' ds_config_tune", {R"("autotuning": {"enabled": true})"}, "autotuning is asked for"},
  };
}

TEST_F(DeepspeedValues, FilesAsTheyAreFoundInPublic) {
  for (const PublicFile& row : public_files()) {
    std::string file;
    for (const std::string& block : row.blocks) file += (file.empty() ? "{" : ", ") + block;
    if (*row.lacks != '\0') {
      expect_text_refused(file + "}", row.lacks, {"--ranks=2"});
    } else {
      expect_taken(file + "}", row.files, {"--ranks=2"});
    }
  }
}

}  // namespace
}  // namespace consist
