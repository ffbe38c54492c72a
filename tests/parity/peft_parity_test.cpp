// LoRA gives the losses, gradient norms and weights that PEFT gives (see tests/golden/make_peft_references.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "tests/parity/reference.h"
#include "tests/parity/tolerances.h"
#include "tests/parity/weight_sums.h"

namespace consist {
namespace {

using nlohmann::json;

/// Stands before the names of a model's modules in PEFT.
std::string name_in_peft(const std::string& parameter) {
  return "base_model.model." + parameter;
}

/// The model's run by PEFT, and the same here.
class PeftParity : public ::testing::TestWithParam<const char*> {
 protected:
  PeftParity()
      : model_(test::read_reference(GetParam())),
        folder_(model_.folder + "/peft"),
        reference_(json::parse(std::ifstream(folder_ + "/reference.json"))),
        host_({CONSIST_BINARY_DIR "/lib/consist/plugins"}) {
    config_.model = model_.folder;
    config_.device = "cpu";
    config_.adapter = "lora";
    for (const auto& [name, value] : reference_.at("options").items()) config_.plugin_options["lora"][name] = value;
    config_.sequence = model_.sequence();
    const json& adamw = reference_.at("adamw");
    config_.plugin_options["adamw"] = {
        {"beta1", adamw.at("beta1").dump()}, {"beta2", adamw.at("beta2").dump()}, {"epsilon", "1e-8"}};
    config_.optimizer = {.weight_decay = adamw.at("weight_decay"), .max_norm = reference_.at("max_norm")};
  }

  void run(std::int64_t micro_batch, int accumulation) {
    config_.batch = micro_batch;
    config_.accumulation = accumulation;
    parts_ = make_parts(config_, host_);
    device_ = make_device(config_, host_).device;
    device_->open(0, 1);
    const CompileRequest request = parts_.compile_request(config_);
    const Layout layout = lay_out(request.strategies, 1);
    state_.reset(new TrainingState({{train_program, compile_step(request, layout)}}, *device_, CommunicatorOfQueue{}, 0, 0));
    state_->allocate(false);
    const ModelWeights weights(model_.folder), adapter(folder_ + "/adapter_model.safetensors");
    state_->load_weights([&](const std::string& name, std::int64_t first, std::span<float> out) {
      parts_.adapted->is_of_base(name) ? weights.read_f32(name, first, out) : adapter.read_f32(name_in_peft(name), first, out);
    });
    const test::ReferenceRows rows(model_);
    const TrainerSettings settings{.steps = static_cast<std::int64_t>(model_.batches.size()),
                                   .micro_batch = micro_batch,
                                   .sequence = config_.sequence,
                                   .accumulation = accumulation,
                                   .learning_rate = reference_.at("adamw").at("lr"),
                                   .optimizers = parts_.optimizer.get()};
    ASSERT_EQ(train(*state_, rows, layout, 0, settings, events_), TrainerResult::finished);
  }

  void expect_reference() {
    const std::vector<double> losses = reference_.at("losses"), norms = reference_.at("grad_norms");
    ASSERT_EQ(events_.reports.size(), losses.size());
    EXPECT_LT(reference_.at("final_loss").get<double>(), losses.front() - 0.1);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      EXPECT_NEAR(events_.reports[s].loss / losses[s], 1, test::transformers_tolerance) << "loss of step " << s + 1;
      EXPECT_NEAR(events_.reports[s].grad_norm / norms[s], 1, 10 * test::transformers_tolerance) << "grad_norm of step " << s + 1;
    }
    expect_weights();
  }

 private:
  void expect_weights() {
    const json& expected = reference_.at("final_weights");
    std::size_t compared = 0;
    for (const Parameter& parameter : state_->step().program().parameters) {
      if (parts_.adapted->is_of_base(parameter.name)) continue;
      ASSERT_TRUE(expected.contains(name_in_peft(parameter.name))) << parameter.name;
      const json& sums = expected.at(name_in_peft(parameter.name));
      std::vector<float> values(static_cast<std::size_t>(state_->step().program()[parameter.tensor].shape.elements()));
      state_->read_weights(parameter.name, 0, values);
      test::expect_weight_sums(parameter.name, values, {.sum = sums.at("sum"), .sum_of_squares = sums.at("sum_of_squares")},
                               1e-4);
      ++compared;
    }
    EXPECT_EQ(compared, expected.size());
  }

  const test::Reference model_;
  const std::string folder_;
  const json reference_;
  PluginHost host_;
  RunConfig config_;
  Parts parts_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<TrainingState> state_;
  test::StepReports events_;
};

TEST_P(PeftParity, WholeBatch) {
  run(2, 1);
  expect_reference();
}

TEST_P(PeftParity, AccumulatedOverTwoMicroBatches) {
  run(1, 2);
  expect_reference();
}

INSTANTIATE_TEST_SUITE_P(Models, PeftParity, ::testing::Values("llama-untied", "qwen3-untied"),
                         [](const auto& info) { return info.param[0] == 'l' ? "llama" : "qwen3"; });

}  // namespace
}  // namespace consist
