// Runs of an optimizer beside those of PyTorch that make_optimizer_references.py and make_own_optimizer_references.py have made.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/compile/compile.h"
#include "core/config/optimizer_rules.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"
#include "tests/parity/reference.h"

namespace consist::test {

struct OptimizerLosses {
  std::vector<double> losses;  ///< of each step
  double evaluated = 0;        ///< of the first batch after the last step
};

/// The reference's batches, again and again; evaluations read the first.
class RepeatedRows final : public Dataset {
 public:
  RepeatedRows(Reference reference, std::size_t steps) : first_(reference.batches.at(0)), rows_(repeated(reference, steps)) {}
  void open(const DatasetRequest& request) override { rows_.open(request); }
  std::int64_t train_sequences() const override { return rows_.train_sequences(); }
  std::int64_t eval_sequences() const override { return static_cast<std::int64_t>(first_.size()); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { rows_.read_train(index, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    std::ranges::copy(first_.at(static_cast<std::size_t>(index)), tokens.begin());
  }
  std::string describe() const override { return rows_.describe(); }

 private:
  static Reference repeated(const Reference& reference, std::size_t steps) {
    Reference longer = reference;
    while (longer.batches.size() < steps)
      longer.batches.insert(longer.batches.end(), reference.batches.begin(), reference.batches.end());
    return longer;
  }
  std::vector<std::vector<std::int32_t>> first_;
  ReferenceRows rows_;
};

/// The losses of a run of such a file on one rank, on the CPU in fp32.
inline OptimizerLosses losses_of(const Reference& reference, const nlohmann::json& run, PluginHost& host) {
  RunConfig config;
  config.model = reference.folder;
  config.device = "cpu";
  config.batch = reference.rows();
  config.sequence = reference.sequence();
  config.optimizer_plugin = run.at("optimizer");
  for (const auto& [name, value] : run.at("options").items()) config.plugin_options[config.optimizer_plugin][name] = value;
  config.optimizer = {.weight_decay = run.at("weight_decay"),
                      .max_norm = run.at("max_norm"),
                      .rules = parse_optimizer_rules(run.value("rules", ""))};
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);

  const CompileRequest request = parts.compile_request(config);
  const Layout layout = lay_out(request.strategies, 1);
  NamedPrograms programs;
  programs.push_back({train_program, compile_step(request, layout)});
  programs.push_back({evaluate_program, compile_evaluation(request, layout)});
  TrainingState state(std::move(programs), *device, {}, 0, 0);
  state.allocate(false);
  const ModelWeights weights(reference.folder);
  const Program& program = state.step().program();
  state.load_weights([&](const std::string& name, std::int64_t first, std::span<float> out) {
    read_parts(weights, stored_parts(name, program[program.find(name)].shape), first, out);
  });

  const std::size_t steps = run.at("losses").size();
  const RepeatedRows rows(reference, steps);
  StepReports events;
  const TrainerSettings settings{.steps = static_cast<std::int64_t>(steps),
                                 .micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .learning_rate = run.at("learning_rate"),
                                 .optimizers = parts.optimizers(config)};
  EXPECT_EQ(train(state, rows, layout, 0, settings, events), TrainerResult::finished);
  OptimizerLosses found;
  for (const StepReport& report : events.reports) found.losses.push_back(report.loss);
  found.evaluated = evaluate(state, rows, layout, 0, settings, events).loss;
  return found;
}

/// Compares them with those of the file, to 1e-5.
inline void expect_losses(const OptimizerLosses& found, const nlohmann::json& run) {
  const std::vector<double> expected = run.at("losses");
  ASSERT_EQ(found.losses.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(found.losses[step] / expected[step], 1, 1e-5) << "step " << step + 1;
  if (run.contains("evaluated")) EXPECT_NEAR(found.evaluated / run.at("evaluated").get<double>(), 1, 1e-5);
}

}  // namespace consist::test
