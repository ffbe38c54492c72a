#include "core/record/recorder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

#include "consist/error.h"

namespace consist {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// About so many rows of /experts in a run: it has a number for each expert of each layer.
constexpr std::int64_t rows_of_experts = 1000;

}  // namespace

std::vector<Column> columns_of(std::span<const OwnMetric> metrics) {
  std::vector<Column> columns;
  for (const OwnMetric& metric : metrics)
    columns.push_back(
        {metric.name, metric.unit, metric.description.empty() ? "reported by the model or loss" : metric.description});
  return columns;
}

bool archive_goes_on(const RunConfig& config, bool own) {
  std::error_code ignored;
  return (own || (config.resume && !config.overwrite)) && std::filesystem::is_regular_file(config.archive, ignored);
}

Recorder::Recorder(const RunConfig& config, std::int64_t first_step, bool own_archive)
    : path_(config.archive), first_step_(first_step), every_(std::max<std::int64_t>(1, config.steps / rows_of_experts)) {
  if (config.archive.empty()) return;
  const bool goes_on = archive_goes_on(config, own_archive);
  if (goes_on) past_ = read_past(config.archive, first_step);
  archive_ = std::make_unique<Archive>(goes_on ? config.archive + ".partial" : config.archive, goes_on || config.overwrite);
  archive_->text("/config", config.to_json());
}

void Recorder::take_over(std::span<const Column> columns) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::ptrdiff_t> source;  // of each column of this archive, its place in the past's rows
  for (const Column& column : columns) {
    const auto found = std::find(past_->columns.begin(), past_->columns.end(), column.name);
    source.push_back(found == past_->columns.end() ? -1 : found - past_->columns.begin());
  }
  for (const std::vector<double>& row : past_->rows) {
    std::vector<double> copied;
    for (const std::ptrdiff_t from : source) copied.push_back(from < 0 ? unknown : row[static_cast<std::size_t>(from)]);
    archive_->append(copied);
  }
  for (const ArchivedEvaluation& evaluation : past_->evaluations) archive_->evaluation(evaluation);
  for (const ArchivedChoices& choices : past_->experts) archive_->experts(choices);
  for (const ArchiveEvent& event : past_->events) archive_->event(event.time, event.kind, event.text);
  archive_->event(now(), "resumed", R"({"step": )" + std::to_string(first_step_) + "}");
  archive_->rename(path_);
}

void Recorder::define_experts(std::span<const Router> routers) {
  if (routers.empty()) return;
  std::vector<std::int64_t> layers;
  for (const Router& router : routers) layers.push_back(router.layer);
  archive_->define_experts(layers, std::ranges::max_element(routers, {}, &Router::experts)->experts);
}

void Recorder::describe(const std::string& environment, const std::string& topology, const std::string& program,
                        std::span<const DeviceReading> sensors, bool auxiliary_loss, std::span<const Router> routers,
                        std::span<const OwnMetric> metrics, const std::string& loss_unit) {
  const std::lock_guard lock(mutex_);
  if (!archive_) return;
  std::vector<Column> columns{{"step", "1", "step, counted from 1"},
                              {"loss", loss_unit, "mean loss of the step over all ranks"},
                              {"grad_norm", "1", "norm of all gradients before clipping"},
                              {"learning_rate", "1", "learning rate"},
                              {"seconds", "s", "wall time of the step, without the wait for its data"},
                              {"tokens", "1", "tokens of all ranks"},
                              {"tokens_per_second", "1/s", "tokens of all ranks per second"},
                              {"samples_per_second", "1/s", "sequences of all ranks per second"},
                              {"data_seconds", "s", "how long rank 0 waited before the step for its data"}};
  if (auxiliary_loss) columns.push_back({"aux_loss", "1", "losses trained on beside the loss, weighted: the balance of routers"});
  if (!routers.empty())
    columns.push_back({"expert_load", "1", "choices of the most chosen expert over the mean, of the least balanced layer"});
  const std::vector<Column> own = columns_of(metrics);
  columns.insert(columns.end(), own.begin(), own.end());
  archive_->define_evaluations(own, loss_unit);
  for (const DeviceReading& sensor : sensors)
    columns.push_back({"device_" + sensor.name, sensor.unit, "sensor of rank 0's device, newest reading when the step ended"});
  define_experts(routers);
  archive_->define_steps(columns);
  archive_->text("/environment", environment);
  archive_->text("/topology", topology);
  archive_->text("/program", program);
  if (past_) take_over(columns);
}

void Recorder::step(const StepReport& r, std::span<const DeviceReading> sensors) {
  const std::lock_guard lock(mutex_);
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
  if (r.auxiliary_loss) row.push_back(*r.auxiliary_loss);
  if (!r.expert_choices.empty()) row.push_back(r.expert_load);
  for (const OwnMetricValue& metric : r.metrics) row.push_back(metric.value);
  for (const DeviceReading& sensor : sensors) row.push_back(sensor.value);
  archive_->append(row);
  if (r.expert_choices.empty() || (r.step - 1) % every_ != 0) return;
  archive_->experts({.step = r.step, .choices = {r.expert_choices.begin(), r.expert_choices.end()}});
}

void Recorder::start(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->text("/start", json);
}

void Recorder::profile(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->text("/profile", json);
}

void Recorder::program(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->text("/program", json);
}

void Recorder::timeline(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->packed_text("/timeline", json);
}

void Recorder::programs(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->packed_text("/programs", json);
}

void Recorder::traffic(const std::string& json) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->text("/comm", json);
}

void Recorder::evaluation(const EvaluationReport& r) {
  const std::lock_guard lock(mutex_);
  if (archive_)
    archive_->evaluation(
        {.step = r.step, .loss = r.loss, .sequences = r.sequences, .seconds = r.seconds, .time = now(), .metrics = r.metrics});
}

void Recorder::event(const std::string& kind, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (archive_) archive_->event(now(), kind, text);
}

void Recorder::finish(const std::string& status, const std::string& reason, const RunResult* result) {
  const std::lock_guard lock(mutex_);
  if (!archive_) return;
  if (result != nullptr) {
    RunResult told = *result;
    // A run that was ended between its last checkpoint and this has no step left.
    if (told.steps == 0 && past_) told.final_loss = past_->last("loss");
    archive_->text("/result", result_json(told));
  }
  archive_->finish(status, reason);
}

void Recorder::finish_failed(const std::string& reason) {
  constexpr std::chrono::seconds patience{1};
  const std::unique_lock lock(mutex_, patience);
  if (!lock.owns_lock() || !archive_) return;
  archive_->event(now(), "failure", reason);
  archive_->finish("failed", reason);
}

}  // namespace consist
