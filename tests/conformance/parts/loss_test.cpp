// Every loss makes a legal loss, the same each time, which is trained on; layouts train as one rank does, and sequences that
// fill the last batch of an evaluation add nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/program/printer.h"
#include "tests/child_process.h"
#include "tests/conformance/parts/parts.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;
using Words = std::vector<std::string>;

constexpr const char* model = "qwen3-tiny";

class LossConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  static RunConfig config() {
    RunConfig config = testing::tiny_config(model, "fp32");
    config.dataset = "synthetic";
    config.loss = GetParam().name;
    config.plugin_options[config.loss] = GetParam().options;
    return config;
  }
  /// The fields of a dataset that the loss reads, as --synthetic.fields takes them.
  static std::string fields() {
    const Parts parts = make_parts(config(), host());
    Program program;
    Builder builder(program);
    const TensorId ids = builder.input("ids", DType::i32, {2, 16}), targets = builder.input("targets", DType::i32, {2, 16});
    parts.architecture->build(builder, ids, targets, 1.0 / 32);
    std::vector<Field> fields;
    for (const Tensor& tensor : program.tensors) {
      if (tensor.role == Role::input && !tensor.state && tensor.name != "ids" && tensor.name != "targets")
        fields.push_back({tensor.name, tensor.dtype});
    }
    return made_up_fields(fields);
  }
  static Plan planned() {
    RunConfig with_fields = config();
    if (const std::string made_up = fields(); !made_up.empty()) with_fields.plugin_options["synthetic"]["fields"] = made_up;
    return plan_run(with_fields, host());
  }
  static Words words_of_loss() {
    Words words{std::string("--model=") + model, "--dataset=synthetic", "--loss=" + GetParam().name, "--sequence=16"};
    for (const auto& [option, value] : GetParam().options) words.push_back("--" + GetParam().name + "." + option + "=" + value);
    if (const std::string made_up = fields(); !made_up.empty()) words.push_back("--synthetic.fields=" + made_up);
    return words;
  }
  ArchiveReader trained(const std::string& archive, const Words& more) const {
    Words words = words_of_loss();
    words.insert(words.end(), {"--global-batch=4", "--device=cpu", "--cpu.threads=1", "--strategy=ddp"});
    words.insert(words.end(), more.begin(), more.end());
    test::add_fallbacks(words, {"--steps=4", "--precision=fp32"});
    return test::train_from_scratch(folder_ / archive, words, testing::consist_program());
  }
  const TemporaryFolder folder_;
};

TEST_P(LossConformance, ProgramsAreLegalAndTheSameEachTime) {
  EXPECT_EQ(to_text(planned().step(0)), to_text(planned().step(0)));
}

TEST_P(LossConformance, SaysWhatItIs) {
  EXPECT_FALSE(planned().parts().loss->loss().describe().empty());
}

TEST_P(LossConformance, IsTrained) {
  const std::vector<double> still = trained("still.h5", {"--learning-rate=0"}).column("loss"),
                            found = trained("moved.h5", {"--learning-rate=0.01"}).column("loss");
  ASSERT_EQ(found.size(), still.size());
  EXPECT_GT(std::abs(found.back() - still.back()), 1e-5);
}

TEST_P(LossConformance, SequencesThatFillAnEvaluationsBatchAddNothing) {
  const Words evaluates{"--steps=1", "--evaluate-every=1", "--evaluate-sequences=3", "--learning-rate=0"};
  Words of_one = evaluates, of_four = evaluates;
  of_one.push_back("--batch=1");
  of_four.push_back("--batch=4");
  const auto loss = [&](const char* archive, const Words& words) { return test::evaluation_loss(trained(archive, words)); };
  EXPECT_NEAR(loss("four.h5", of_four) / loss("one.h5", of_one), 1, 1e-5);
}

TEST_P(LossConformance, LayoutsTrainAsOneRankDoes) {
  for (const char* strategy : {"zero2", "tp-sp", "pipeline", "cp"}) {
    if (!host().has("strategy", strategy)) continue;
    SCOPED_TRACE(strategy);
    Words words = words_of_loss();
    words.insert(words.begin(), {testing::consist_program(), "prove"});
    words.insert(words.end(), {"--precision=fp32", "--batch=2", "--ranks=2", std::string("--strategy=") + strategy + "=2"});
    const test::ChildResult result = test::run_child(words, std::chrono::seconds(120));
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, ::testing::HasSubstr("equal: this layout trains as one rank does"));
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LossConformance, ::testing::ValuesIn(testing::candidates("loss", "CONSIST_CONFORMANCE_LOSSES")),
                         [](const auto& info) { return testing::test_name(info); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LossConformance);

}  // namespace
}  // namespace consist
