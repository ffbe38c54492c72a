// Results of PyTorch and transformers for the tiny models in tests/golden/hf (see make_hf_references.py there).
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "core/training/trainer.h"

namespace consist::test {

struct WeightSums {
  double sum = 0, sum_of_squares = 0;
};

struct Reference {
  std::string folder;
  std::vector<std::vector<std::vector<std::int32_t>>> batches;  ///< [step][row][token]
  std::vector<double> losses, grad_norms;                       ///< by step; norms before clipping
  std::vector<double> aux_losses;                               ///< by step; of models that have one
  double max_norm = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  std::map<std::string, WeightSums> final_weights;

  std::int64_t rows() const { return static_cast<std::int64_t>(batches.at(0).size()); }
  std::int64_t sequence() const { return static_cast<std::int64_t>(batches.at(0).at(0).size()) - 1; }
};

inline Reference read_reference(const std::string& name) {
  Reference r;
  r.folder = CONSIST_SOURCE_DIR "/tests/golden/hf/" + name;
  std::ifstream file(r.folder + "/reference.json");
  if (!file) throw std::runtime_error(r.folder + "/reference.json cannot be read");
  const nlohmann::json json = nlohmann::json::parse(file);
  r.batches = json.at("batches").get<decltype(r.batches)>();
  r.losses = json.at("losses").get<std::vector<double>>();
  r.aux_losses = json.value("aux_losses", std::vector<double>());
  r.grad_norms = json.at("grad_norms").get<std::vector<double>>();
  r.max_norm = json.at("max_norm").get<double>();
  const nlohmann::json& adamw = json.at("adamw");
  r.learning_rate = adamw.at("lr").get<double>();
  r.beta1 = adamw.at("beta1").get<double>();
  r.beta2 = adamw.at("beta2").get<double>();
  r.epsilon = adamw.at("epsilon").get<double>();
  r.weight_decay = adamw.at("weight_decay").get<double>();
  for (const auto& [parameter, sums] : json.at("final_weights").items()) {
    r.final_weights[parameter] = {.sum = sums.at("sum").get<double>(), .sum_of_squares = sums.at("sum_of_squares").get<double>()};
  }
  return r;
}

/// The texts that make_generate_references.py has written, by model.
inline nlohmann::json generate_references() {
  std::ifstream file(CONSIST_SOURCE_DIR "/tests/golden/generated.json");
  return nlohmann::json::parse(file);
}

/// The reference's rows, in order.
class ReferenceRows final : public Dataset {
 public:
  explicit ReferenceRows(const Reference& reference) {
    for (const auto& batch : reference.batches) rows_.insert(rows_.end(), batch.begin(), batch.end());
  }
  void open(const DatasetRequest& /*request*/) override {}
  std::int64_t train_sequences() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t eval_sequences() const override { return 0; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    const std::vector<std::int32_t>& row = rows_.at(static_cast<std::size_t>(index));
    if (row.size() != tokens.size()) throw std::runtime_error("a row of another length was asked for");
    std::copy(row.begin(), row.end(), tokens.begin());
  }
  void read_eval(std::int64_t /*index*/, std::span<std::int32_t> /*tokens*/) const override {
    throw std::runtime_error("there are no sequences for evaluation");
  }
  std::string describe() const override { return "the rows of a reference"; }

 private:
  std::vector<std::vector<std::int32_t>> rows_;
};

/// The reports of a run's steps.
class StepReports final : public TrainerEvents {
 public:
  void step_finished(const StepReport& report) override { reports.push_back(report); }
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override { return false; }

  std::vector<StepReport> reports;
};

}  // namespace consist::test
