// Fields of the dataset: loss masks and documents under every strategy, exact against one rank. Which targets count differs from
// micro-batch to micro-batch and from rank to rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "consist/error.h"
#include "consist/layers.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const Words mask{"--synthetic.fields=loss_mask"}, documents{"--synthetic.fields=document_start"},
    both{"--synthetic.fields=loss_mask,document_start"};

const ModelChoice untied_llama{"llama-untied"};

class Fields : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const Words& words) const {
    for (const Words& fields : {mask, documents, both}) expect_one_rank(GetParam(), fields + words);
  }
};

TEST_P(Fields, OneRank) {
  expect({"--accumulation=4"});
  expect({"--accumulation=2", "--recompute=full", "--max-norm=0.01"});
}

TEST_P(Fields, DataParallel) {
  expect({"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  expect({"--strategy=zero2", "--ranks=4"});
  expect({"--strategy=zero3-offload", "--ranks=2", "--accumulation=2", "--zero3-offload.param-persistence-threshold=100"});
}

TEST_P(Fields, TensorParallel) {
  expect({"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.logits-bytes=1500"});
  expect({"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"});
  expect({"--strategy=tp-sp=2+ddp", "--ranks=4", "--tp-sp.overlap-parts=2"});
}

TEST_P(Fields, Pipeline) {
  for (const char* schedule : {"1f1b", "zero-bubble"})
    expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=" + std::string(schedule)});
  expect({"--strategy=tp-sp=2+pipeline=2+zero2", "--ranks=8", "--accumulation=2"});
}

INSTANTIATE_TEST_SUITE_P(Models, Fields,
                         ::testing::Values(Column{"llama", untied_llama}, Column{"qwen_bf16", four_heads, {"--precision=bf16"}},
                                           Column{"llama_fp8", untied_llama, {"--precision=fp8"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LossMask, TheLossIsTheMeanOverWhatIsLeft) {
  // Every eleventh target counts nothing with or without a mask; without one the sum is divided by all targets all the same.
  const Words no_limit{"--max-norm=0"};
  const Outcome &all = one_rank(*compile(config_of(untied_llama, no_limit), 0)),
                &left = one_rank(*compile(config_of(untied_llama, no_limit + mask), 0));
  EXPECT_NE(all.losses[0], left.losses[0]);
  // Untrained, the loss of any targets is about the logarithm of the vocabulary, if it is divided by those that count.
  EXPECT_NEAR(left.losses[0] / all.losses[0], 64.0 / (64 - 6), 0.2);
}

/// The inputs of a step that are fields.
std::set<std::string> fields_of(const Words& words) {
  const auto programs = compile(config_of(untied_llama, words), 0);
  std::set<std::string> names;
  for (const Tensor& tensor : programs->steps[0].program.tensors) {
    if (tensor.role == Role::input && (tensor.name.starts_with("loss_mask") || tensor.name.starts_with("document_start")))
      names.insert(tensor.name);
  }
  return names;
}

TEST(DatasetFields, BecomeInputsOfEachMicroBatchIfTheDatasetHasThem) {
  EXPECT_THAT(fields_of({"--accumulation=2"}), ::testing::IsEmpty());
  EXPECT_THAT(fields_of(mask + Words{"--accumulation=2"}), ::testing::ElementsAre("loss_mask.0", "loss_mask.1"));
  EXPECT_THAT(fields_of(both), ::testing::ElementsAre("document_start.0", "loss_mask.0"));
}

/// A model that cannot do without weights of its targets.
class Weighted final : public Architecture {
 public:
  ModelSizes sizes() const override { return {.vocabulary = 32}; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    b.input("weights", DType::f32, b[ids].shape);
    const TensorId table = b.parameter("table.weight", {32, 16}, 0, 0.1F, true);
    return layers::lm_head_loss(b, layers::embedding(b, ids, table, "x"), table, targets, scale, "loss");
  }
  std::string config_json() const override { return "{}"; }
};

TEST(DatasetFields, AnInputThatNobodyWritesIsAnErrorBeforeTheFirstStep) {
  const Weighted model;
  const auto precision = plugin_host().make<Precision>("precision", "fp32", {});
  CompileRequest request;
  request.architecture = &model;
  request.precision = precision.get();
  request.sequence = 8;
  const auto refusal = [&] {
    try {
      compile_step(request, lay_out({}, 1));
    } catch (const ProgramError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refusal(), ::testing::AllOf(::testing::HasSubstr("nobody writes the input 'weights', f32"),
                                          ::testing::HasSubstr("which are: none")));
  request.fields = {{"weights", DType::i32}, {"loss_mask", DType::i32}};
  EXPECT_THAT(refusal(), ::testing::HasSubstr("which are: weights i32, loss_mask i32"));
  request.fields[0].dtype = DType::f32;
  EXPECT_EQ(refusal(), "nothing was refused");
}

}  // namespace
}  // namespace consist::interpreter
