// --from Megatron-LM's arguments: in a script, a file, YAML.
#include <cmath>
#include <filesystem>
#include <numbers>

#include "tests/commands/import/trainer_file_case.h"

namespace consist {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const std::string model =
    "--num-layers 4 --hidden-size 128 --num-attention-heads 8 --ffn-hidden-size 256 --seq-length 64 --max-position-embeddings "
    "128 "
    "--normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights "
    "--attention-dropout 0 --hidden-dropout 0.0 --vocab-size 1000 ";

class Megatron : public test::TrainerFileTest {
 protected:
  RunConfig of(const std::string& more, const std::vector<std::string>& words = {}) {
    return config_of("torchrun --nproc_per_node 8 pretrain_gpt.py " + model + more + "\n", words);
  }
  void expect_not_taken(const std::string& more, const std::string& message) {
    expect_refused("torchrun --nproc_per_node 8 pretrain_gpt.py " + model + more + "\n", message);
  }
};

TEST_F(Megatron, AScriptBecomesAConfiguration) {
  const RunConfig c = config_of(R"script(#!/bin/bash
# A set-up.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
DATA=${1:-"MOCK"}
GPUS=8
NODES=${NODES:-2}
WORLD=$(($GPUS*$NODES))
TP=2
DTYPE="fp8"
mkdir -p "$(dirname "$OUT")"
LAUNCH=(
    --nproc_per_node $GPUS
    --nnodes $NODES
    --master_addr ${ADDR:-localhost}
)
MODEL=(
    --num-layers 4       # remarks are passed over
    --hidden-size 128
    --num-attention-heads 8
    --group-query-attention
    --num-query-groups 2
    --kv-channels 32
    --ffn-hidden-size 256
    --seq-length 64 --max-position-embeddings 128
    --normalization RMSNorm --swiglu --position-embedding-type rope --rotary-base 500000
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --vocab-size 1000 --make-vocab-size-divisible-by 8
)
TRAIN=(
    --micro-batch-size 1 --global-batch-size 32 --train-iters 100
    --lr 0.001 --min-lr 1.0e-4 --lr-decay-style cosine --lr-warmup-iters 10
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 0.5 --bf16
)
FP8=()
if [[ "$DTYPE" == "fp8" ]]; then
    FP8+=("--fp8-format hybrid" "--fp8-amax-history-len 16" "--fp8-amax-compute-algo max")
elif [ $TP -gt 4 ]; then
    FP8+=(--no-such-argument)
fi
TRAIN+=(--use-distributed-optimizer --overlap-grad-reduce)
if [[ "$TOKENIZER" == "MOCK" ]] || [[ "$DATA" == "MOCK" ]]; then
    INPUT="--mock-data --tokenizer-type NullTokenizer"
else
    INPUT="--data-path $DATA"
fi
if [ ! -f pretrain_gpt.py ]; then
    exit 1
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${MODEL[@]} ${TRAIN[@]} ${FP8[@]} --tensor-model-parallel-size $TP \
    --sequence-parallel $INPUT --save "$OUT/checkpoints" | tee "$OUT/log"
)script");
  EXPECT_EQ(c.ranks, 16);
  EXPECT_EQ(text_of(c.strategies), "tp-sp=2+zero2");
  EXPECT_EQ(option(c, "zero2", "stage"), "1");
  EXPECT_EQ(option(c, "zero2", "overlap-comm"), "true");
  EXPECT_EQ(option(c, "tp-sp", "sequence-parallel"), "true");
  EXPECT_EQ(c.precision, "fp8");
  EXPECT_EQ(option(c, "fp8", "scaling"), "delayed");
  EXPECT_EQ(option(c, "fp8", "amax-history-len"), "16");
  EXPECT_EQ(option(c, "fp8", "gradient-format"), "e5m2");
  EXPECT_EQ(c.batch, 1);
  EXPECT_EQ(c.global_batch, 32);
  EXPECT_EQ(c.steps, 100);
  EXPECT_EQ(c.optimizer.max_norm, 0.5);
  EXPECT_EQ(c.schedule, "cosine");
  EXPECT_EQ(c.seed, 1234) << "Megatron-LM's default";
  const ModelSizes s = sizes(c);
  EXPECT_EQ(s.layers, 4);
  EXPECT_EQ(s.hidden, 128);
  EXPECT_EQ(s.heads, 8);
  EXPECT_EQ(s.kv_heads, 2);
  EXPECT_EQ(s.head_dim, 32);
  EXPECT_EQ(s.vocabulary, 1008) << "a word more (NullTokenizer), as a multiple of 8 times 2 ranks";
  expect_notes(
      c, {"torchrun.master-addr", "mock-data", "save", "tokenizer-type", "its value is not known without running the script",
          "a condition cannot be known", "fp8-amax-compute-algo", "normalization", "weight-decay"});
}

/// OptimizerParamScheduler.get_lr of megatron/core/optimizer_param_scheduler.py at d98e8a6, in steps.
double megatron_rate(double step, double warmup, double until, const std::string& style, double peak, double least, double init,
                     double wsd = 0, const std::string& wsd_style = "") {
  if (warmup > 0 && step <= warmup) return init + (peak - init) * step / warmup;
  if (style == "constant") return peak;
  if (step > until) return least;
  const double ratio = (step - warmup) / (until - warmup);
  double left = style == "linear" ? 1 - ratio : 0.5 * (std::cos(std::numbers::pi * ratio) + 1);
  if (style == "WSD") {
    const double begin = until - wsd, part = (step - begin) / wsd;
    left = step <= begin           ? 1
           : wsd_style == "linear" ? 1 - part
           : wsd_style == "cosine" ? 0.5 * (std::cos(std::numbers::pi * part) + 1)
                                   : 1 - std::sqrt(part);
  }
  return least + left * (peak - least);
}

TEST_F(Megatron, RatesAreThoseOfMegatron) {
  const std::string head = "--train-iters 30 --lr 0.01 --min-lr 0.001 --lr-warmup-iters 4 ";
  const auto near = [&](const std::string& more, const std::string& style, double until, double init = 0, double wsd = 0,
                        const std::string& wsd_style = "") {
    const RunConfig c = of(head + more + " --lr-decay-style " + style);
    for (int step = 0; step < 30; ++step)
      EXPECT_NEAR(rate(c, step), megatron_rate(step, 4, until, style, 0.01, 0.001, init, wsd, wsd_style), 1e-12)
          << more << style << ", step " << step;
  };
  near("", "constant", 30);
  near("", "linear", 30);
  near("", "cosine", 30);
  near("--lr-decay-iters 20", "cosine", 20);
  near("--lr-decay-iters 40", "linear", 40);
  near("--lr-warmup-init 1e-4", "linear", 30, 1e-4);
  for (const char* style : {"linear", "cosine", "minus_sqrt"})
    near("--lr-wsd-decay-iters 10 --lr-wsd-decay-style " + std::string(style), "WSD", 30, 0, 10, style);
  const RunConfig samples =
      of("--global-batch-size 8 --train-samples 240 --lr 0.01 --lr-warmup-samples 32 --lr-decay-samples 160 --lr-decay-style "
         "cosine");
  EXPECT_EQ(samples.steps, 30);
  for (int step = 0; step < 30; ++step) EXPECT_NEAR(rate(samples, step), megatron_rate(step, 4, 20, "cosine", 0.01, 0, 0), 1e-12);
  const RunConfig nearest =
      of("--global-batch-size 8 --train-samples 240 --lr 0.01 --lr-warmup-samples 30 --lr-decay-style constant");
  EXPECT_THAT(nearest.notes, Contains(AllOf(HasSubstr("lr-warmup-samples"), HasSubstr("taken as 4"))));
  expect_not_taken("--train-iters 30 --lr 1 --lr-decay-style inverse-square-root", "lr-decay-style is \"inverse-square-root\"");
  expect_not_taken("--train-iters 30 --lr 1 --lr-decay-style WSD --lr-wsd-decay-iters 5",
                   "lr-wsd-decay-style (its default) is \"exponential\"");
  expect_not_taken("--train-samples 240 --lr 1", "counts samples");
}

TEST_F(Megatron, DegreesAreStrategies) {
  const auto strategies = [&](const std::string& more) { return text_of(of(more).strategies); };
  EXPECT_EQ(strategies(""), "ddp");
  EXPECT_EQ(strategies("--use-distributed-optimizer --pipeline-model-parallel-size 2"), "zero2+pipeline=2");
  EXPECT_EQ(strategies("--context-parallel-size 2 --cp-comm-type a2a"), "cp=2+ddp");
  EXPECT_EQ(strategies("--use-torch-fsdp2"), "zero3-offload");
  EXPECT_EQ(strategies("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"), "zero3-offload");
  EXPECT_EQ(strategies("--num-experts 8 --expert-model-parallel-size 4"), "ep=4+ddp");
  const std::string mixture = "--tensor-model-parallel-size 2 --num-experts 8 ";
  const auto experts = [&](const std::string& more) { return option(of(mixture + more), "tp-sp", "experts"); };
  EXPECT_EQ(strategies(mixture), "tp-sp=2+ddp");
  EXPECT_EQ(experts(""), "divided") << "Megatron divides the matrices of each";
  EXPECT_EQ(experts("--expert-tensor-parallel-size 1"), "whole");
  EXPECT_EQ(strategies(mixture + "--expert-model-parallel-size 4"), "tp-sp=2+ep=4+ddp");
  EXPECT_EQ(strategies(mixture + "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1"), "tp-sp=2+ep=2+ddp")
      << "ranks of tp-sp are among those of experts";
  EXPECT_EQ(strategies(mixture + "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1"), "tp-sp=2+ddp");
  EXPECT_EQ(experts("--expert-model-parallel-size 2 --expert-tensor-parallel-size 1"), "divided");
  expect_not_taken(mixture + "--expert-model-parallel-size 3 --expert-tensor-parallel-size 1", "it must be a multiple of that here");
  expect_not_taken(mixture + "--expert-tensor-parallel-size 4", "it may be 1 or as many");
  const std::string folded = "--num-experts 8 --context-parallel-size 4 --cp-comm-type all_gather --expert-model-parallel-size 8";
  EXPECT_EQ(strategies(folded), "cp=4+ep=2+ddp") << "ranks of context are among those of experts";
  EXPECT_EQ(option(of(folded), "cp", "experts"), "divided");
  expect_not_taken("--num-experts 8 --expert-tensor-parallel-size 2", "but tensor-model-parallel-size is 1");
  RunConfig c = of("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1");
  EXPECT_EQ(option(c, "pipeline", "schedule"), "interleaved");
  EXPECT_EQ(option(c, "pipeline", "chunks"), "2");
  EXPECT_EQ(option(of("--context-parallel-size 2 --cp-comm-type a2a"), "cp", "attention"), "ulysses");
  EXPECT_EQ(option(of("--context-parallel-size 2 --cp-comm-type all_gather"), "cp", "attention"), "gather");
  c = of("--use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction 0.5 --bf16 --grad-reduce-in-bf16");
  EXPECT_EQ(option(c, "zero2", "offload-optimizer.device"), "cpu");
  EXPECT_EQ(option(c, "zero2", "offload-optimizer.ratio"), "0.5");
  EXPECT_EQ(option(c, "zero2", "overlap-comm"), "false") << "overlap-grad-reduce is not given";
  EXPECT_EQ(option(c, "bf16", "gradients"), "bf16");
  expect_not_taken("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3", "does not divide the 4 layers");
  expect_not_taken("--tensor-model-parallel-size two", "tensor-model-parallel-size is \"two\"; it must be a number");
}

TEST_F(Megatron, ModelsAreBySizes) {
  EXPECT_THAT(of("").model, HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(of("--qk-layernorm").model, HasSubstr("Qwen3ForCausalLM"));
  EXPECT_THAT(of("--add-qkv-bias").model, HasSubstr("Qwen2ForCausalLM"));
  RunConfig c = of("--num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type aux_loss");
  EXPECT_THAT(c.model, HasSubstr("MixtralForCausalLM"));
  EXPECT_EQ(sizes(c).experts, 8);
  EXPECT_THAT(of("--num-experts 8 --qk-layernorm --moe-ffn-hidden-size 64").model, HasSubstr("Qwen3MoeForCausalLM"));
  c = config_of("torchrun p.py --num-layers 2 --micro-batch-size 1\n", {"--model=llama-tiny"});
  EXPECT_EQ(c.model, "llama-tiny") << "the command line goes before the file";
  const auto without = [&](const std::string& argument) {
    std::string text = "x.py " + model + "\n";
    const std::size_t at = text.find(argument);
    return text.erase(at, text.find("--", at + 2) - at);
  };
  expect_refused(without("--normalization"), "--from-set normalization=RMSNorm");
  expect_refused(without("--swiglu"), "swiglu (its default) is not given");
  expect_refused(without("--position-embedding-type"), "position-embedding-type=rope");
  expect_refused(without("--disable-bias-linear"), "disable-bias-linear=true");
  expect_refused(without("--attention-dropout"), "attention-dropout (its default) is 0.1");
  expect_refused(without("--vocab-size"), "give --from-set vocab-size=N");
  expect_refused(without("--hidden-size"), "hidden-size (its default) is not given");
  EXPECT_EQ(sizes(config_of(without("--normalization"), {"--from-set=normalization=RMSNorm", "--from-set=num-layers=2"})).layers,
            2);
}

TEST_F(Megatron, ActivationsAreMadeAgainAsAsked) {
  const auto asked = [&](const std::string& more) {
    const RunConfig c = of(more);
    return what_text(c.recompute) + " " + layers_text(c.recompute);
  };
  EXPECT_EQ(asked(""), "none ");
  EXPECT_EQ(asked("--recompute-activations --recompute-granularity selective"), "none ") << "attention keeps no scores";
  EXPECT_EQ(asked("--recompute-granularity selective --recompute-modules layernorm moe_act"), "rms_norm,swiglu ");
  EXPECT_EQ(asked("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"), "full ");
  EXPECT_EQ(asked("--recompute-granularity full --recompute-method block --recompute-num-layers 2"), "full 0-1");
  EXPECT_EQ(asked("--activations-checkpoint-method uniform"), "full ");
  expect_not_taken("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
                   "recompute-num-layers is 2");
  expect_not_taken("--recompute-granularity selective --recompute-modules mla_up_proj", "has \"mla_up_proj\"");
}

TEST_F(Megatron, ActivationsOfTheFirstLayersWaitOnTheHost) {
  EXPECT_EQ(text_of(of("--cpu-offloading --cpu-offloading-num-layers 2").offload), "0-1");
  EXPECT_EQ(text_of(of("--cpu-offloading-num-layers 2").offload), "none");
  EXPECT_EQ(text_of(of("--cpu-offloading").offload), "none") << "of no layer";
  expect_not_taken("--cpu-offloading --cpu-offloading-num-layers 2000", "cpu-offloading-num-layers is 2000");
}

TEST_F(Megatron, OtherForms) {
  EXPECT_EQ(sizes(config_of("--num-layers 3\n" + model.substr(model.find("--hidden")) + "\n")).layers, 3)
      << "a file of arguments";
  const RunConfig variables =
      config_of("#!/bin/bash\nTP=2\nMODEL_ARGS=\" \\\n  " + model + " \\\n  --tensor-model-parallel-size ${TP} \\\n\"\n");
  EXPECT_EQ(text_of(variables.strategies), "tp-sp=2+ddp");
  EXPECT_THAT(variables.notes, Contains(HasSubstr("no command starts a program")));
  const RunConfig quoted =
      config_of("#!/bin/bash\noptions=\"" + model +
                "\"\nrun=\"cd /x && python -u pretrain_gpt.py ${options}\"\nsrun -l sh -c \"${run} --bf16\"\n");
  EXPECT_EQ(quoted.precision, "bf16");
#if __has_include(<yaml-cpp/yaml.h>)
  const RunConfig yaml = config_of(
      "MODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 128\n  --num-attention-heads: 8\n  --seq-length: 64\n  --normalization: "
      "RMSNorm\n  --swiglu: true\n"
      "  --position-embedding-type: rope\n  --disable-bias-linear: true\n  --attention-dropout: 0.0\n  --hidden-dropout: 0.0\n  "
      "--vocab-size: 1000\n  --bf16: true\n"
      "  --sequence-parallel: false\n");
  EXPECT_EQ(yaml.precision, "bf16");
  EXPECT_EQ(sizes(yaml).ffn, 320) << "two thirds of four times the width, a multiple of 64";
#endif
  const RunConfig branches = config_of(
      "#!/bin/bash\nSIZE=b\ncase $SIZE in\n  a) L=1 ;;\n  b|c) L=2 ;;\n  *) L=3 ;;\nesac\nfor i in 1 2; do\n  L=9\ndone\n"
      "torchrun p.py " +
      model + " --num-layers $L\n");
  EXPECT_EQ(sizes(branches).layers, 2);
}

TEST_F(Megatron, WhatIsNotDoneHereIsRefused) {
  expect_not_taken("--no-such-argument 3", "\"no-such-argument\" is not known");
  expect_not_taken("--fp16", "fp16 is given");
  expect_not_taken("--decoupled-lr 5e-4", "decoupled-lr is asked for");
  EXPECT_NO_THROW(of("--decoupled-lr 5e-4", {"--from-set=decoupled-lr=null"})) << "null leaves a key out";
  expect_not_taken("--optimizer muon", "optimizer is \"muon\"");
  expect_not_taken("--moe-shared-expert-intermediate-size 64", "models have no shared experts");
  expect_not_taken("--spec a b", "made of Python modules");
}

TEST_F(Megatron, HostileScriptsAreRefusedAtOnce) {
  const std::string end = "torchrun p.py " + model + "\n";
  expect_refused("#!/bin/bash\nA='open\n" + end, "is not closed");
  expect_refused("#!/bin/bash\nA=${B\n" + end, "is not closed");
  expect_refused("#!/bin/bash\necho hello\n", "starts no program with arguments of Megatron-LM");
  std::string doubling = "#!/bin/bash\nA=xxxxxxxxxxxxxxxx\n";
  for (int n = 0; n < 64; ++n) doubling += "A=$A$A\n";
  expect_refused(doubling + end, "1");
  std::string copies = "#!/bin/bash\nA=" + std::string(100'000, 'x') + "\n";
  for (int n = 0; n < 1000; ++n) copies += "B" + std::to_string(n) + "=$A\n";
  expect_refused(copies + end, "unfold to more than 16 MiB");
  std::string branches = "#!/bin/bash\n";
  for (int n = 0; n < 100; ++n) branches += "if [ 1 == 1 ]; then\n";
  expect_refused(branches + end, "nested deeper than 16 levels");
  std::string defaults = "${A:-", close;
  std::string nested;
  for (int n = 0; n < 1000; ++n) nested += defaults, close += "}";
  expect_refused("#!/bin/bash\nX=" + nested + "1" + close + "\n" + end, "nested deeper than 16 levels");
  EXPECT_EQ(sizes(config_of("#!/bin/bash\nL=$((" + std::string(1000, '(') + "2" + std::string(1000, ')') + "))\n" + end)).layers,
            4)
      << "an unknown number";
  EXPECT_EQ(of("--seed $((40 + 3 - 1))").seed, 42);
  EXPECT_EQ(of("--seed $((9223372036854775807*2))").seed, 1234) << "a number that overflows is not known";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "made"));
  of("--save $(touch " + (folder_ / "made") + ") `touch " + (folder_ / "made") + "`");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "made")) << "nothing is executed";
}

}  // namespace
}  // namespace consist
