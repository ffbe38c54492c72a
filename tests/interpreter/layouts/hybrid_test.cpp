// Hybrid sharding: parts within a group of ranks, replicas of them across groups (MiCS; PyTorch's HSDP).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "consist/op.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const ModelChoice untied{"llama-untied"};

const Words small_buckets_of_zero3{"--zero3-offload.reduce-bucket-size=4000", "--zero3-offload.prefetch-bucket-size=4000",
                                   "--zero3-offload.param-persistence-threshold=100", "--zero3-offload.max-reuse-distance=0"};
const Words small_buckets = small_buckets_of_zero3 + Words{"--ddp.bucket-size=4Ki"};

TEST(Hybrid, ShardsWithinReplicasAcross) {
  for (const char* accumulation : {"--accumulation=1", "--accumulation=2"}) {
    for (const char* strategy : {"--strategy=zero2=2+ddp=2", "--strategy=ddp=2+zero2=2", "--strategy=ddp=2+zero2"})
      expect_one_rank(llama, {strategy, "--ranks=4", accumulation, "--ddp.bucket-size=4Ki"});
    expect_one_rank(
        untied, {"--strategy=zero2=2+ddp=2", "--ranks=4", accumulation, "--zero2.stage=1", "--zero2.reduce-bucket-size=4000"});
    expect_one_rank(qwen, Words{"--strategy=zero3-offload=2+ddp=2", "--ranks=4", accumulation} + small_buckets);
    expect_one_rank(qwen,
                    Words{"--strategy=zero3-offload=2+ddp", "--ranks=6", "--global-batch=12", accumulation} + small_buckets);
  }
  expect_one_rank(untied, {"--strategy=zero2=3+ddp=2", "--ranks=6", "--global-batch=12", "--zero2.overlap-comm=false"});
  expect_one_rank(llama, {"--strategy=zero3-offload=2x2+ddp=2", "--ranks=8"});
  expect_one_rank(llama, {"--strategy=zero2=2+ddp=2x2", "--ranks=8"});
}

TEST(Hybrid, BesideOtherStrategies) {
  expect_one_rank(llama, Words{"--strategy=tp-sp=2+zero3-offload=2+ddp=2", "--ranks=8", "--accumulation=2", "--global-batch=8"} +
                             small_buckets);
  for (const char* schedule : {"1f1b", "zero-bubble"}) {
    expect_one_rank(llama, {"--strategy=pipeline=2+zero2=2+ddp=2", "--ranks=8", "--accumulation=2", "--global-batch=8",
                            "--zero2.stage=1", "--pipeline.schedule=" + std::string(schedule)});
  }
  expect_one_rank(
      qwen,
      Words{"--strategy=pipeline=2+zero3-offload=2+ddp=2", "--ranks=8", "--accumulation=2", "--global-batch=8"} + small_buckets);
  expect_one_rank(llama, {"--strategy=pipeline=2+ddp=2+zero2=2+tp-sp=2", "--ranks=16", "--accumulation=2", "--global-batch=8"});
}

TEST(Hybrid, WithOffloadFp8RecomputationAndOtherOptimizers) {
  const Words third = Words{"--strategy=zero3-offload=2+ddp=2", "--ranks=4", "--accumulation=2"} + small_buckets;
  for (const char* update : {"device", "cpu"}) {
    expect_one_rank(qwen, third + Words{"--zero3-offload.offload-param.device=cpu",
                                        "--zero3-offload.offload-optimizer.device=cpu", "--zero3-offload.sub-group-size=3000",
                                        "--zero3-offload.offload-optimizer.update=" + std::string(update)});
  }
  expect_one_rank(qwen, third + Words{"--precision=fp8", "--fp8.gathers=true"});
  expect_one_rank(qwen, third + Words{"--precision=fp8", "--fp8.scaling=delayed"});
  expect_one_rank(llama, third + Words{"--precision=bf16", "--zero3-offload.communication-data-type=bf16", "--recompute=full"});
  expect_one_rank(llama, third + Words{"--zero3-offload.reduce-each-micro-batch=false", "--zero3-offload.overlap-comm=false"});
  expect_one_rank(llama, third + Words{"--zero3-offload.contiguous-gradients=false", "--freeze=*mlp*,model.embed_tokens.weight"});
  for (const char* optimizer : {"sgd", "lion", "muon"})
    expect_one_rank(qwen, {"--strategy=zero2=2+ddp=2", "--ranks=4", "--optimizer=" + std::string(optimizer)});
}

/// Experts lie flat along the data axis alone, everything else along that of experts, too; replicas of both are summed across.
TEST(Hybrid, BesideExperts) {
  const ModelChoice experts{"mixtral"};
  for (const char* strategy : {"ep=2+zero2=2+ddp=2", "ddp=2+zero3-offload=2+ep=2", "ep=2+zero3-offload=1+ddp=4", "ep=2+zero2=4+ddp=1"})
    expect_one_rank(experts, {"--strategy=" + std::string(strategy), "--ranks=8", "--ep.capacity=2"});
  // Nothing divides the experts' own parameters any further: they stay on the device.
  expect_one_rank(experts, Words{"--strategy=ep=4+zero3-offload", "--ranks=4", "--ep.capacity=4",
                                 "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu",
                                 "--zero3-offload.param-persistence-threshold=100"});
  expect_one_rank(experts, Words{"--strategy=ep=2+zero3-offload=2", "--ranks=4", "--ep.capacity=2", "--accumulation=2",
                                 "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu"} +
                               small_buckets_of_zero3);
}

/// Counts how often rank 0 sends gradients and parameters, and over which axes.
TEST(Hybrid, EachAxisHasItsOwnCollectives) {
  for (const int accumulation : {1, 3}) {
    const auto programs = compile(config_of(llama, {"--strategy=zero2=2+ddp=2", "--ranks=4", "--global-batch=12",
                                                    "--accumulation=" + std::to_string(accumulation)}),
                                  0);
    const Program& step = programs->steps[0].program;
    std::map<std::string, int> counts;
    for (const Instruction& i : step.instructions) {
      const bool scalar = i.op->is_collective() && step[i.inputs[0]].shape.rank() == 0;
      if (i.op->is_collective() && !scalar) ++counts[std::string(i.op->name()) + " " + step.mesh.text(i.queue.axes())];
    }
    EXPECT_THAT(counts, UnorderedElementsAre(Pair("all_gather data.1", 1), Pair("reduce_scatter data.1", accumulation),
                                             Pair("all_reduce data.0", 1)))
        << "across only once per step";
  }
}

}  // namespace
}  // namespace consist::interpreter
