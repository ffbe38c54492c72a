#include "launch/view/show/run_view.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/archive/own_metric_values.h"

namespace consist::launch {
namespace {

using nlohmann::json;

const json* find(const json& object, const std::string& path) {
  const json::json_pointer at(path);
  return object.contains(at) ? &object[at] : nullptr;
}

double modified(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return 0;
  return static_cast<double>(file.st_mtim.tv_sec) + 1e-9 * static_cast<double>(file.st_mtim.tv_nsec);
}

double mean_of_last(const std::vector<double>& values, std::size_t most) {
  const std::size_t count = std::min(most, values.size());
  if (count == 0) return 0;
  return std::accumulate(values.end() - static_cast<std::ptrdiff_t>(count), values.end(), 0.0) / static_cast<double>(count);
}

double median_of_last(const std::vector<double>& values, std::size_t most) {
  std::vector<double> last(values.end() - static_cast<std::ptrdiff_t>(std::min(most, values.size())), values.end());
  if (last.empty()) return 0;
  for (double& value : last) value = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;  // which has an order
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::nth_element(last.begin(), middle, last.end());
  return *middle;
}

/// A count that a file states; 0 for what is none.
std::int64_t counted(double number) {
  constexpr double most = 9e15;
  return number >= 1 && number <= most ? static_cast<std::int64_t>(number) : 0;
}

RunView read_once(const std::string& path, const ArchiveReader& archive) {
  RunView run{.path = path};
  run.written = modified(path);
  run.status = archive.status();
  run.reason = archive.reason();
  for (const auto& [name, into] : {std::pair{"/config", &run.config},
                                   {"/environment", &run.environment},
                                   {"/topology", &run.topology},
                                   {"/program", &run.program},
                                   {"/result", &run.result},
                                   {"/evaluation", &run.evaluation}})
    *into = archived_object(archive.text(name));
  run.evaluations = archive.evaluations();
  run.events = archive.events();
  run.loss_unit = archive.loss_unit();
  const std::vector<std::string> there = archive.columns();
  if (there.empty()) return run;
  run.metrics = final_metrics(archive);
  for (const auto& [name, into] : {std::pair{"step", &run.step},
                                   {"loss", &run.loss},
                                   {"seconds", &run.seconds},
                                   {"data_seconds", &run.data_seconds},
                                   {"tokens", &run.tokens},
                                   {"device_power", &run.power}}) {
    const bool needed = std::string_view(name) != "device_power";
    if (needed || std::find(there.begin(), there.end(), name) != there.end()) *into = archive.column(name);
  }
  // The run may have gone on between the reading of two columns.
  std::vector<std::vector<double>*> columns{&run.step, &run.loss, &run.seconds, &run.data_seconds, &run.tokens};
  if (!run.power.empty()) columns.push_back(&run.power);
  std::size_t rows = run.step.size();
  for (const auto* column : columns) rows = std::min(rows, column->size());
  for (auto* column : columns) column->resize(rows);
  return run;
}

}  // namespace

std::string text_at(const json& object, const std::string& path) {
  const json* const found = find(object, path);
  if (found == nullptr || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

double number_at(const json& object, const std::string& path) {
  const json* const found = find(object, path);
  return found != nullptr && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t RunView::steps() const {
  return counted(number_at(config, "/steps"));
}

std::int64_t RunView::done() const {
  return step.empty() ? 0 : counted(step.back());
}

RunView read_run(const std::string& path) {
  // A run that goes on may write between the opening and the reading of its file, which then refers to what was not there when it
  // was opened. Opened again it is whole.
  constexpr int attempts = 5;
  constexpr std::chrono::milliseconds pause{50};
  for (int attempt = 1;; ++attempt) {
    const ArchiveReader archive(path);
    try {
      return read_once(path, archive);
    } catch (const DataError&) {
      if (attempt == attempts) throw;
    }
    std::this_thread::sleep_for(pause);
  }
}

Speed speed_of(const RunView& run) {
  Speed speed{.steady = steady_state(run.seconds)};
  if (speed.steady.steps == 0) return speed;
  const double tokens = run.tokens.back();
  speed.tokens_per_second = tokens / speed.steady.median_seconds;
  speed.low = tokens / speed.steady.high_seconds;
  speed.high = tokens / speed.steady.low_seconds;
  const double waits = std::accumulate(run.data_seconds.begin(), run.data_seconds.end(), 0.0);
  const double steps = std::accumulate(run.seconds.begin(), run.seconds.end(), 0.0);
  speed.data_share = waits + steps > 0 ? waits / (waits + steps) : 0;
  return speed;
}

std::optional<double> seconds_left(const RunView& run) {
  constexpr std::size_t newest = 100;
  if (!run.running() || run.done() == 0 || run.steps() == 0) return std::nullopt;
  const std::int64_t left = std::max<std::int64_t>(0, run.steps() - run.done());
  double seconds = static_cast<double>(left) * (median_of_last(run.seconds, newest) + mean_of_last(run.data_seconds, newest));
  const std::int64_t interval = counted(number_at(run.config, "/evaluate_every"));
  if (interval > 0 && !run.evaluations.empty()) {
    seconds += static_cast<double>(run.steps() / interval - run.done() / interval) * run.evaluations.back().seconds;
  }
  return seconds;
}

Costs costs_of(const RunView& run, const std::string& price) {
  const Speed speed = speed_of(run);
  return costs_of(run.config, run.environment, price, speed.tokens_per_second,
                  speed.steady.steps == 0
                      ? std::nullopt
                      : mean_power(run.power, run.seconds, static_cast<std::size_t>(speed.steady.first_step - 1)));
}

}  // namespace consist::launch
