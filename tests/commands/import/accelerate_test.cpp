// --from an Accelerate YAML.
#include <sys/stat.h>

#include "tests/commands/import/trainer_file_case.h"

namespace consist {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Accelerate : public test::TrainerFileTest {
 protected:
  void SetUp() override {
#if !__has_include(<yaml-cpp/yaml.h>)
    GTEST_SKIP() << "this build reads no YAML";
#endif
  }
  RunConfig of(const std::string& file, std::vector<std::string> words = {}) {
    words.push_back("--model=llama-tiny");
    return config_of(file, words);
  }
  static std::string fsdp(const std::string& keys, const std::string& more = "") {
    return "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  "
           "fsdp_version: 2\n" +
           keys + more;
  }
};

TEST_F(Accelerate, AFileBecomesAConfiguration) {
  const RunConfig c = of(R"(# written by accelerate config
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: true
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 4
tpu_env: []
use_cpu: false
)");
  EXPECT_EQ(text_of(c.strategies), "zero3-offload");
  EXPECT_EQ(c.ranks, 4);
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_TRUE(c.recompute.full);
  EXPECT_EQ(option(c, "zero3-offload", "offload-param.device"), "cpu");
  EXPECT_EQ(option(c, "zero3-offload", "communication-data-type"), "bf16") << "FSDP reduces in the dtype of mixed precision";
  EXPECT_EQ(option(c, "zero3-offload", "max-reuse-distance"), "0");
  expect_notes(c, {"compute_environment", "debug false", "distributed_type", "downcast_bf16", "fsdp_auto_wrap_policy",
                   "fsdp_version 2", "fsdp_activation_checkpointing", "fsdp_offload_params", "fsdp_reshard_after_forward",
                   "machine_rank", "num_machines", "tpu_env", "use_cpu"});
}

TEST_F(Accelerate, ShardingOfBothVersions) {
  const auto strategies = [&](const std::string& keys, const std::string& more = "") {
    return text_of(of(fsdp(keys, more)).strategies);
  };
  const auto reuse = [&](const std::string& keys) { return option(of(fsdp(keys)), "zero3-offload", "max-reuse-distance"); };
  for (const char* full : {"  fsdp_sharding_strategy: FULL_SHARD\n", "  fsdp_sharding_strategy: 1\n",
                           "  fsdp_reshard_after_forward: true\n", "  fsdp_reshard_after_forward: FULL_SHARD\n"})
    EXPECT_EQ(reuse(full), "0") << full;
  for (const char* part :
       {"  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "  fsdp_sharding_strategy: 2\n", "  fsdp_reshard_after_forward: false\n"})
    EXPECT_EQ(reuse(part), "1000000000000000") << part;
  EXPECT_EQ(strategies("  fsdp_sharding_strategy: NO_SHARD\n"), "ddp");
  EXPECT_EQ(strategies("  fsdp_sharding_strategy: HYBRID_SHARD\n", "num_machines: 2\n"), "zero3-offload=4+ddp=2");
  EXPECT_EQ(strategies("  fsdp_sharding_strategy: HYBRID_SHARD\n"), "zero3-offload") << "one machine";
  EXPECT_EQ(strategies("",
                       "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n  "
                       "parallelism_config_tp_size: 2\n"),
            "tp-sp=2+zero3-offload=2+ddp=2");
  const RunConfig c =
      of(fsdp("", "parallelism_config:\n  parallelism_config_cp_size: 8\n  parallelism_config_cp_comm_strategy: allgather\n"));
  EXPECT_EQ(text_of(c.strategies), "cp=8+zero3-offload");
  EXPECT_EQ(option(c, "cp", "attention"), "gather");
  expect_refused(fsdp("  fsdp_sharding_strategy: SOME\n"), "fsdp_sharding_strategy is \"SOME\"");
}

TEST_F(Accelerate, KindsAndDtypes) {
  const auto file = [](const std::string& type, const std::string& more) {
    return "distributed_type: " + type + "\nnum_processes: 4\n" + more;
  };
  RunConfig c = of(file("MULTI_GPU", "mixed_precision: 'bf16'\n"));
  EXPECT_EQ(text_of(c.strategies), "ddp");
  EXPECT_EQ(c.ranks, 4);
  c = of(file("NO", "mixed_precision: no\n"));
  EXPECT_EQ(c.ranks, 1) << "one process, whatever num_processes says";
  EXPECT_EQ(c.precision, "fp32") << "no is a truth value of YAML";
  c = of(file("'NO'",
              "mixed_precision: fp8\nfp8_config:\n  backend: TE\n  fp8_format: E4M3\n  amax_history_len: 16\n  "
              "amax_compute_algo: max\n"));
  EXPECT_EQ(c.precision, "fp8");
  EXPECT_EQ(option(c, "fp8", "scaling"), "delayed");
  EXPECT_EQ(option(c, "fp8", "amax-history-len"), "16");
  EXPECT_EQ(option(c, "fp8", "gradient-format"), "e4m3");
  c = of(file("MEGATRON_LM",
              "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 4\n"
              "  megatron_lm_use_distributed_optimizer: true\n  megatron_lm_sequence_parallelism: true\n  "
              "megatron_lm_gradient_clipping: 0.5\n"));
  EXPECT_EQ(text_of(c.strategies), "tp-sp=2+zero2+pipeline=2");
  EXPECT_EQ(option(c, "zero2", "stage"), "1");
  EXPECT_EQ(c.accumulation, 4);
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  expect_refused(file("MULTI_GPU", "mixed_precision: fp16\n"), "mixed_precision is \"fp16\"");
  expect_refused(file("TPU", ""), "distributed_type is \"TPU\"");
  expect_refused(file("MULTI_GPU", "mixed_precison: bf16\n"), "\"mixed_precison\" is not known");
  expect_refused("distributed_type: FSDP\ncompute_environment: AMAZON_SAGEMAKER\n",
                 "compute_environment is \"AMAZON_SAGEMAKER\"");
}

TEST_F(Accelerate, DeepspeedInlineAndByAFile) {
  const std::string head = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config:\n";
  RunConfig c = of(head +
                   "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: none\n  "
                   "gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n  zero3_init_flag: true\n");
  EXPECT_EQ(text_of(c.strategies), "zero3-offload");
  EXPECT_EQ(option(c, "zero3-offload", "offload-optimizer.device"), "cpu");
  EXPECT_EQ(c.accumulation, 4);
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  EXPECT_EQ(c.precision, "bf16");
  expect_notes(c, {"zero_stage", "offload_param_device", "zero3_init_flag"});
  write_whole(folder_ / "ds.json",
              R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 3})");
  c = of(head + "  deepspeed_config_file: ds.json\n");
  EXPECT_EQ(text_of(c.strategies), "zero2");
  EXPECT_EQ(c.batch, 3);
  EXPECT_EQ(c.precision, "bf16") << "auto follows mixed_precision";
  const std::string ulysses = "parallelism_config:\n  parallelism_config_sp_size: 2\n";
  c = of(head + "  zero_stage: 3\n" + ulysses);
  EXPECT_EQ(text_of(c.strategies), "cp=2+zero3-offload");
  EXPECT_EQ(option(c, "cp", "attention"), "ulysses");
  expect_refused(head + "  zero_stage: 3\nparallelism_config:\n  parallelism_config_tp_size: 2\n",
                 "beside distributed_type DEEPSPEED");
  expect_refused(head + "  deepspeed_config_file: ds.json\n  zero_stage: 2\n", "beside deepspeed_config_file");
  expect_refused(head + "  deepspeed_config_file: none.json\n", "none.json");
}

TEST_F(Accelerate, HostileYamlIsRefusedAtOnce) {
  const std::string head = "distributed_type: FSDP\n";
  expect_refused(head + "a: " + std::string(40, '[') + std::string(40, ']') + "\n", "nested deeper than 32 levels");
  expect_refused(head + "a: " + std::string(100'000, '[') + "\n", "line 2");
  std::string nested = head;
  for (int level = 0; level < 40; ++level) nested += std::string(static_cast<std::size_t>(level), ' ') + "a:\n";
  expect_refused(nested, "nested deeper than 32 levels");
  expect_refused(head + "a: &x [1]\nb: *x\n", "line 3: an alias");
  expect_refused(head + "debug: false\ndebug: true\n", "line 3: the key \"debug\" stands there twice");
  expect_refused(head + "---\ndistributed_type: NO\n", "several documents");
  expect_refused(head + "num_processes: [1]\n", "num_processes is [1]; it must be a number");
  expect_refused(head + "num_processes: 1.5\n", "must be a whole number");
  expect_refused(head + "num_processes: 99999999999999999999\n", "num_processes");
  expect_refused(head + "? [a, b]\n: 1\n", "a key must be a text");
  expect_refused(head + "\"\\e[2J\": 1\n", "\\u001b[2J");
  expect_refused(head + "a: ]\n", "line 2");
  expect_refused(head + std::string(2 << 20, '#'), "more than the 1048576");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(make_config(parse_run({"--from=" + (folder_ / "pipe")}), host_), SystemError);
}

TEST_F(Accelerate, FilesOfNoSuchKindAreRefusedWithWhatIsRead) {
  expect_refused("model_name: a\nfoo: 1\n", "a torchtitan TOML, a script or file of Megatron-LM's arguments");
  expect_refused("", "is of no format");
  expect_refused("just words\n", "is of no format");
  expect_refused("from torchtitan.trainer import Trainer\n\ndef f():\n  pass\n", "is Python code");
  expect_refused("{\"a\": 1}", "has keys of no format");
}

}  // namespace
}  // namespace consist
