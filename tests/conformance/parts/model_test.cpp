// Every model offers presets whose programs are legal and trainable, and comes back from its own config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "core/program/printer.h"
#include "tests/conformance/parts/parts.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class ModelConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  std::shared_ptr<Model> model_ = host().make<Model>("model", GetParam().name, GetParam().options);

  /// The preset with the fewest parameters.
  std::unique_ptr<Architecture> smallest() const {
    std::unique_ptr<Architecture> found;
    for (const ModelPreset& preset : model_->presets()) {
      auto made = model_->from_preset(preset.name);
      if (found == nullptr || made->sizes().parameters < found->sizes().parameters) found = std::move(made);
    }
    return found;
  }
};

/// Forward of one micro-batch, as the model writes it.
Program forward(const Architecture& architecture) {
  Program program;
  Builder builder(program);
  const std::int64_t tokens = 8;
  const TensorId ids = builder.input("ids", DType::i32, {2, tokens}), targets = builder.input("targets", DType::i32, {2, tokens});
  program.loss = architecture.build(builder, ids, targets, 1.0);
  return program;
}

TEST_P(ModelConformance, PresetsHaveNamesAndNoOthers) {
  std::set<std::string> names;
  for (const ModelPreset& preset : model_->presets()) {
    EXPECT_FALSE(preset.name.empty());
    EXPECT_FALSE(preset.summary.empty()) << preset.name;
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name << " is listed twice";
  }
  EXPECT_THROW(model_->from_preset("a preset that nobody has"), UsageError);
}

TEST_P(ModelConformance, SizesAreThoseOfTheProgram) {
  for (const ModelPreset& preset : model_->presets()) {
    SCOPED_TRACE(preset.name);
    const auto architecture = model_->from_preset(preset.name);
    const ModelSizes sizes = architecture->sizes();
    EXPECT_GT(sizes.vocabulary, 0);
    EXPECT_GT(sizes.hidden, 0);
    EXPECT_GT(sizes.ffn, 0);
    EXPECT_GT(sizes.layers, 0);
    const Program program = forward(*architecture);
    std::int64_t parameters = 0;
    std::set<std::string> names;
    for (const Parameter& parameter : program.parameters) {
      parameters += program[parameter.tensor].shape.elements();
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    }
    EXPECT_EQ(parameters, sizes.parameters);
    EXPECT_EQ(program[program.loss].shape.rank(), 0) << "the loss is a scalar";
  }
}

// compile_step() verifies what the model wrote, and what follows from it.
TEST_P(ModelConformance, EveryParameterIsTrained) {
  const auto architecture = smallest();
  if (architecture == nullptr) GTEST_SKIP() << "it has no presets";
  const RunConfig config = testing::tiny_config("", "fp32");
  const auto precision = host().make<Precision>("precision", "fp32", {});
  const CompileRequest request{
      .architecture = architecture.get(), .precision = precision.get(), .micro_batch = config.batch, .sequence = config.sequence};
  const Program step = compile_step(request, lay_out({}, 1));
  for (const Parameter& parameter : step.parameters) EXPECT_NE(parameter.gradient, no_tensor) << parameter.name;
  EXPECT_EQ(to_text(step), to_text(compile_step(request, lay_out({}, 1)))) << "the same each time";
}

TEST_P(ModelConformance, ItComesBackFromItsOwnConfig) {
  const auto architecture = smallest();
  if (architecture == nullptr) GTEST_SKIP() << "it has no presets";
  const std::string config = architecture->config_json();
  const nlohmann::json json = nlohmann::json::parse(config);
  ASSERT_TRUE(json.contains("architectures") && !json["architectures"].empty()) << config;
  EXPECT_TRUE(model_->accepts(json["architectures"][0].get<std::string>()));
  EXPECT_EQ(to_text(forward(*model_->from_config(config))), to_text(forward(*architecture)));
}

TEST_P(ModelConformance, ABrokenConfigIsADataError) {
  for (const char* broken : {"", "[", "[]", "{}", "null", R"({"architectures": 3})"})
    EXPECT_THROW(model_->from_config(broken), DataError) << broken;
  EXPECT_FALSE(model_->accepts("AnArchitectureThatNobodyHas"));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelConformance,
                         ::testing::ValuesIn(testing::candidates("model", "CONSIST_CONFORMANCE_MODELS")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
