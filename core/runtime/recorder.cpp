#include "core/runtime/recorder.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "consist/error.h"

namespace consist {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Recorder::Recorder(const RunConfig& config) {
  if (config.archive.empty()) return;
  archive_ = std::make_unique<Archive>(config.archive, config.overwrite);
  archive_->text("/config", config.to_json());
}

void Recorder::describe(const std::string& environment, const std::string& topology, const std::string& program,
                        std::span<const DeviceReading> sensors) {
  if (!archive_) return;
  std::vector<Column> columns{{"step", "1", "step, counted from 1"},
                              {"loss", "nat/token", "mean cross-entropy over the step's tokens of all ranks"},
                              {"grad_norm", "1", "norm of all gradients before clipping"},
                              {"learning_rate", "1", "learning rate"},
                              {"seconds", "s", "wall time of the step, without the wait for its data"},
                              {"tokens", "1", "tokens of all ranks"},
                              {"tokens_per_second", "1/s", "tokens of all ranks per second"},
                              {"samples_per_second", "1/s", "sequences of all ranks per second"},
                              {"data_seconds", "s", "how long rank 0 waited before the step for its data"}};
  for (const DeviceReading& sensor : sensors)
    columns.push_back({"device_" + sensor.name, sensor.unit, "sensor of rank 0's device, newest reading when the step ended"});
  archive_->define_steps(columns);
  archive_->text("/environment", environment);
  archive_->text("/topology", topology);
  archive_->text("/program", program);
}

void Recorder::step(const StepReport& r, std::span<const DeviceReading> sensors) {
  if (!archive_) return;
  std::vector<double> row{static_cast<double>(r.step),
                          r.loss,
                          r.grad_norm,
                          r.learning_rate,
                          r.seconds,
                          static_cast<double>(r.tokens),
                          static_cast<double>(r.tokens) / r.seconds,
                          static_cast<double>(r.sequences) / r.seconds,
                          r.data_seconds};
  for (const DeviceReading& sensor : sensors) row.push_back(sensor.value);
  archive_->append(row);
}

void Recorder::start(const std::string& json) {
  if (archive_) archive_->text("/start", json);
}

void Recorder::profile(const std::string& json) {
  if (archive_) archive_->text("/profile", json);
}

void Recorder::traffic(const std::string& json) {
  if (archive_) archive_->text("/comm", json);
}

void Recorder::evaluation(const EvaluationReport& r) {
  if (archive_)
    archive_->evaluation({.step = r.step, .loss = r.loss, .sequences = r.sequences, .seconds = r.seconds, .time = now()});
}

void Recorder::event(const std::string& kind, const std::string& text) {
  if (archive_) archive_->event(now(), kind, text);
}

void Recorder::finish(const std::string& status, const std::string& reason, const RunResult* result) {
  if (!archive_) return;
  if (result != nullptr) {
    nlohmann::ordered_json json{{"planned_bytes", result->planned.device.bytes},
                                {"planned_bytes_rank", result->planned.device.rank},
                                {"planned_host_bytes", result->planned.host.bytes},
                                {"planned_host_bytes_rank", result->planned.host.rank},
                                {"measured_peak_bytes", result->measured_peak.bytes},
                                {"measured_peak_bytes_rank", result->measured_peak.rank},
                                {"start_seconds", result->start_seconds},
                                {"steps", result->steps},
                                {"final_loss", result->final_loss},
                                {"model_flops_per_second", result->model_flops},
                                {"bound_flops_per_second", nullptr},
                                {"bound_problem", result->bound_problem}};
    if (result->bound_flops > 0) json["bound_flops_per_second"] = result->bound_flops;
    json["share_of_bound"] =
        result->bound_flops > 0 ? nlohmann::ordered_json(result->model_flops / result->bound_flops) : nullptr;
    json["evaluation_loss"] =
        result->evaluation_loss == result->evaluation_loss ? nlohmann::ordered_json(result->evaluation_loss) : nullptr;
    json["evaluation_sequences"] = result->evaluation_sequences;
    json["processors"] = nullptr;
    if (const auto& use = result->processors)
      json["processors"] = {{"own", use->own}, {"others", use->others}, {"stolen", use->stolen}, {"idle", use->idle}};
    archive_->text("/result", json.dump(2));
  }
  archive_->finish(status, reason);
}

}  // namespace consist
