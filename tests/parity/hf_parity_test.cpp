// Training from a Hugging Face folder gives the losses, gradient norms and weights that PyTorch and transformers give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"
#include "tests/parity/reference.h"
#include "tests/parity/tolerances.h"
#include "tests/parity/weight_sums.h"

namespace consist {
namespace {

using test::Reference;

struct HfCase {
  std::string model, device, precision;
};

class HfParity : public ::testing::TestWithParam<HfCase> {
 protected:
  HfParity() : reference_(test::read_reference(GetParam().model)), host_({CONSIST_BINARY_DIR "/lib/consist/plugins"}) {}

  void SetUp() override {
    const std::string& device = GetParam().device;
    if (!host_.has("device", device)) GTEST_SKIP() << "this build has no device '" << device << "'";
    const std::string reason = host_.unavailable(host_.find("device", device), std::chrono::seconds(60));
    if (!reason.empty()) GTEST_SKIP() << device << ": " << reason;
  }

  /// Runs the reference's steps on one rank from the folder's weights.
  void run(std::int64_t micro_batch, int accumulation) {
    RunConfig config;
    config.model = reference_.folder;
    config.device = GetParam().device;
    config.precision = GetParam().precision;
    config.batch = micro_batch;
    config.accumulation = accumulation;
    config.sequence = reference_.sequence();
    config.plugin_options["adamw"] = {{"beta1", std::to_string(reference_.beta1)},
                                      {"beta2", std::to_string(reference_.beta2)},
                                      {"epsilon", "1e-8"}};
    ASSERT_EQ(reference_.epsilon, 1e-8);
    config.optimizer = {.weight_decay = reference_.weight_decay,
                        .max_norm = reference_.max_norm};
    parts_ = make_parts(config, host_);
    device_ = make_device(config, host_).device;
    device_->open(0, 1);

    const CompileRequest request = parts_.compile_request(config);
    const Layout layout = lay_out(request.strategies, 1);
    state_.reset(new TrainingState({{train_program, compile_step(request, layout)}}, *device_, CommunicatorOfQueue{}, 0, 0));
    state_->allocate(false);
    const ModelWeights weights(reference_.folder);
    const Program& program = state_->step().program();
    state_->load_weights([&](const std::string& name, std::int64_t first, std::span<float> out) {
      read_parts(weights, stored_parts(name, program[program.find(name)].shape), first, out);
    });

    const test::ReferenceRows rows(reference_);
    const TrainerSettings settings{.steps = static_cast<std::int64_t>(reference_.batches.size()),
                                   .micro_batch = micro_batch,
                                   .sequence = config.sequence,
                                   .accumulation = accumulation,
                                   .learning_rate = reference_.learning_rate,
                                   .optimizers = parts_.optimizer.get()};
    ASSERT_EQ(train(*state_, rows, layout, 0, settings, events_), TrainerResult::finished);
  }

  void expect_reference() {
    ASSERT_EQ(events_.reports.size(), reference_.losses.size());
    const test::ReferenceTolerance tolerance = test::reference_tolerance(GetParam().device, GetParam().precision);
    int clipped = 0;
    for (std::size_t s = 0; s < events_.reports.size(); ++s) {
      const StepReport& report = events_.reports[s];
      EXPECT_NEAR(report.loss / reference_.losses[s], 1, tolerance.loss) << "loss of step " << report.step;
      EXPECT_NEAR(report.grad_norm / reference_.grad_norms[s], 1, tolerance.grad_norm) << "grad_norm of step " << report.step;
      EXPECT_EQ(report.auxiliary_loss.has_value(), !reference_.aux_losses.empty());
      if (report.auxiliary_loss) {
        EXPECT_NEAR(*report.auxiliary_loss / reference_.aux_losses.at(s), 1, tolerance.loss) << "step " << report.step;
      }
      clipped += report.grad_norm > reference_.max_norm ? 1 : 0;
    }
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, static_cast<int>(events_.reports.size()));
    if (tolerance.weights > 0) expect_weights(tolerance);
  }

  const Reference reference_;

 private:
  void expect_weights(const test::ReferenceTolerance& of) {
    const std::vector<Parameter>& parameters = state_->step().program().parameters;
    std::size_t stored = 0;
    for (const Parameter& parameter : parameters) {
      const Shape& shape = state_->step().program()[parameter.tensor].shape;
      test::WeightSums expected;
      for (const StoredPart& part : stored_parts(parameter.name, shape)) {
        const auto found = reference_.final_weights.find(part.name);
        ASSERT_NE(found, reference_.final_weights.end()) << part.name << " is not a parameter of transformers' model";
        expected.sum += found->second.sum;
        expected.sum_of_squares += found->second.sum_of_squares;
        ++stored;
      }
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      state_->read_weights(parameter.name, 0, values);
      test::expect_weight_sums(parameter.name, values, expected,
                               parameter.name.ends_with("k_proj.bias") ? of.key_biases : of.weights);
    }
    EXPECT_EQ(stored, reference_.final_weights.size());
  }

  PluginHost host_;
  Parts parts_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<TrainingState> state_;
  test::StepReports events_;
};

TEST_P(HfParity, WholeBatch) {
  run(2, 1);
  expect_reference();
}

TEST_P(HfParity, AccumulatedOverTwoMicroBatches) {
  if (GetParam().model == "qwen3-moe") GTEST_SKIP() << "a balance loss is the mean of those of micro-batches";
  run(1, 2);
  expect_reference();
}

std::vector<HfCase> hf_cases() {
  std::vector<HfCase> all;
  for (const auto& [device, precision] :
       {std::pair{"cpu", "fp32"}, {"cpu", "bf16"}, {"cpu", "fp8"}, {"cuda", "fp32"}, {"cuda", "bf16"}}) {
    for (const char* model : {"llama-untied", "llama-tied", "llama-rope-scaled", "qwen3-tied", "qwen3-untied", "qwen2.5-bias",
                              "llama-padded", "qwen3-padded", "qwen2.5-window"}) {
      if (model == std::string_view("qwen2.5-window") && device == std::string_view("cuda")) continue;  // it has no windows
      all.push_back({model, device, precision});
    }
  }
  // In fewer bits some token goes to another expert.
  all.push_back({"qwen3-moe", "cpu", "fp32"});
  all.push_back({"mixtral", "cpu", "fp32"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, HfParity, ::testing::ValuesIn(hf_cases()), [](const auto& info) {
  std::string name = info.param.model + "_" + info.param.device + "_" + info.param.precision;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace consist
