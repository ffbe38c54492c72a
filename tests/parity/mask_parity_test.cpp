// Loss masks and documents: the losses and gradient norms that PyTorch and transformers give with the same masks
// (tests/golden/make_mask_references.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"
#include "tests/parity/reference.h"
#include "tests/parity/tolerances.h"

namespace consist {
namespace {

using test::Reference;
using test::transformers_tolerance;

/// The reference's rows with fields, row by row.
class Rows final : public Dataset {
 public:
  Rows(const Reference& reference, const nlohmann::json& masks, std::vector<Field> fields)
      : rows_(reference), fields_(std::move(fields)) {
    for (const Field& field : fields_) {
      for (const auto& step : masks.at(field.name)) {
        for (const auto& row : step) values_[field.name].push_back(row.get<std::vector<std::int32_t>>());
      }
    }
  }
  void open(const DatasetRequest& request) override { rows_.open(request); }
  std::int64_t train_sequences() const override { return rows_.train_sequences(); }
  std::int64_t eval_sequences() const override { return 0; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { rows_.read_train(index, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { rows_.read_eval(index, tokens); }
  std::vector<Field> fields() const override { return fields_; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    for (const FieldValues& field : values) {
      const std::vector<std::int32_t>& row = values_.at(field.field.name).at(static_cast<std::size_t>(index));
      std::copy(row.begin(), row.end(), static_cast<std::int32_t*>(field.data));
    }
  }
  std::string describe() const override { return rows_.describe(); }

 private:
  test::ReferenceRows rows_;
  std::vector<Field> fields_;
  std::map<std::string, std::vector<std::vector<std::int32_t>>> values_;
};

struct MaskCase {
  std::string model, fields;
  int accumulation = 1;
};

class MaskParity : public ::testing::TestWithParam<MaskCase> {};

TEST_P(MaskParity, LossesAreThoseOfTransformers) {
  const Reference reference = test::read_reference(GetParam().model);
  std::ifstream file(reference.folder + "/masks.json");
  const nlohmann::json masks = nlohmann::json::parse(file);
  std::vector<Field> fields;
  if (GetParam().fields != "documents") fields.push_back({"loss_mask", DType::i32});
  if (GetParam().fields != "mask") fields.push_back({"document_start", DType::i32});
  const Rows rows(reference, masks, fields);

  RunConfig config;
  config.model = reference.folder;
  config.device = "cpu";
  config.batch = reference.rows() / GetParam().accumulation;
  config.accumulation = GetParam().accumulation;
  config.sequence = reference.sequence();
  config.plugin_options["adamw"] = {
      {"beta1", std::to_string(reference.beta1)}, {"beta2", std::to_string(reference.beta2)}, {"epsilon", "1e-8"}};
  config.plugin_options["cpu"]["threads"] = "1";
  config.optimizer = {.weight_decay = reference.weight_decay, .max_norm = reference.max_norm};
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);
  CompileRequest request = parts.compile_request(config);
  request.fields = fields;
  const Layout layout = lay_out(request.strategies, 1);
  TrainingState state({{train_program, compile_step(request, layout)}}, *device, CommunicatorOfQueue{}, 0, 0);
  state.allocate(false);
  const ModelWeights weights(reference.folder);
  const Program& program = state.step().program();
  state.load_weights([&](const std::string& name, std::int64_t first, std::span<float> out) {
    read_parts(weights, stored_parts(name, program[program.find(name)].shape), first, out);
  });
  const TrainerSettings settings{.steps = static_cast<std::int64_t>(reference.batches.size()),
                                 .micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .accumulation = config.accumulation,
                                 .learning_rate = reference.learning_rate,
                                 .optimizers = parts.optimizer.get()};
  test::StepReports events;
  ASSERT_EQ(train(state, rows, layout, 0, settings, events), TrainerResult::finished);

  // The routers' losses depend on micro-batches: a reference of one row in each beside that of all rows in one.
  const nlohmann::json& expected =
      masks.at(!reference.aux_losses.empty() && config.accumulation > 1 ? "mask_by_rows" : GetParam().fields);
  const auto losses = expected.at("losses").get<std::vector<double>>(),
             norms = expected.at("grad_norms").get<std::vector<double>>(),
             aux_losses = expected.value("aux_losses", std::vector<double>());
  EXPECT_EQ(aux_losses.empty(), reference.aux_losses.empty());
  ASSERT_EQ(events.reports.size(), losses.size());
  for (std::size_t s = 0; s < losses.size(); ++s) {
    EXPECT_NEAR(events.reports[s].loss / losses[s], 1, transformers_tolerance) << "loss of step " << s + 1;
    EXPECT_NEAR(events.reports[s].grad_norm / norms[s], 1, 10 * transformers_tolerance) << "grad_norm of step " << s + 1;
    EXPECT_GT(std::abs(losses[s] / reference.losses[s] - 1), 10 * transformers_tolerance)
        << "the fields change nothing, so that this says nothing";
    if (aux_losses.empty()) continue;
    EXPECT_NEAR(events.reports[s].auxiliary_loss.value_or(0) / aux_losses[s], 1, transformers_tolerance)
        << "aux_loss of step " << s + 1;
  }
}

std::vector<MaskCase> mask_cases() {
  std::vector<MaskCase> all;
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    for (const char* fields : {"mask", "documents", "both"}) {
      for (const int accumulation : {1, 2}) all.push_back({model, fields, accumulation});
    }
  }
  // Mixtures of experts, whose routers train on a balance loss and on a z-loss.
  for (const char* model : {"qwen3-moe", "mixtral"}) {
    for (const int accumulation : {1, 2}) all.push_back({model, "mask", accumulation});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, MaskParity, ::testing::ValuesIn(mask_cases()), [](const auto& info) {
  std::string name = info.param.model + "_" + info.param.fields + "_" + std::to_string(info.param.accumulation);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace consist
