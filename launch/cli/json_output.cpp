#include "launch/cli/json_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "core/archive/own_metric_values.h"
#include "launch/cli/json_values.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// The former standard output; null until begin_json_output(), and where another rank speaks.
FILE* output = nullptr;
std::mutex output_mutex;

void print(const std::string& text) {
  const std::lock_guard lock(output_mutex);
  if (output == nullptr) return;
  std::fputs(text.c_str(), output);
  std::fflush(output);
}

}  // namespace

void begin_json_output(bool speaks) {
  std::fflush(stdout);
  const int kept = speaks ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
  if ((speaks && kept < 0) || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw Error("--json: standard output cannot be turned to standard error: " + std::string(std::strerror(errno)));
  const std::lock_guard lock(output_mutex);
  if (speaks) output = fdopen(kept, "w");
}

void give_back_standard_output() {
  std::fflush(stdout);
  const std::lock_guard lock(output_mutex);
  if (output != nullptr && dup2(fileno(output), STDOUT_FILENO) < 0)
    throw Error("--json: standard output cannot be given back: " + std::string(std::strerror(errno)));
}

void print_event(const Json& event) {
  print(event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_document(const Json& document) {
  print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_json(const std::string& document) {
  print(document);
}

void print_error_event(const std::string& message, int status) {
  print_event({{"event", "error"}, {"message", message}, {"status", status}});
}

void JsonObserver::begin(const ObservedRun& run) {
  began_ = true;
  print_event({{"event", "run"},
               {"version", 1},
               {"configuration", Json::parse(run.configuration)},
               {"ranks", ranks_},
               {"archive", archive_.empty() ? Json(nullptr) : Json(archive_)},
               {"first_step", run.first_step},
               {"steps", run.steps},
               {"loss_unit", run.loss_unit},
               {"description", run.description}});
}

void JsonObserver::step(const ObservedStep& step) {
  tokens_ = step.tokens;
  print_event({{"event", "step"},
               {"step", step.step},
               {"loss", step.loss},
               {"grad_norm", step.grad_norm},
               {"learning_rate", step.learning_rate},
               {"ms", step.seconds * 1e3},
               {"data_ms", step.data_seconds * 1e3},
               {"tokens", step.tokens},
               {"sequences", step.sequences},
               {"tokens_per_second", step.seconds > 0 ? Json(static_cast<double>(step.tokens) / step.seconds) : Json(nullptr)},
               {"aux_loss", known(step.aux_loss)},
               {"expert_load", known(step.expert_load)},
               {"metrics", json_of(step.metrics)}});
}

void JsonObserver::evaluated(const ObservedEvaluation& evaluation) {
  print_event({{"event", "evaluation"},
               {"step", evaluation.step},
               {"loss", evaluation.loss},
               {"sequences", evaluation.sequences},
               {"metrics", json_of(evaluation.metrics)}});
}

void JsonObserver::sample(std::int64_t step, std::string_view text) {
  print_event({{"event", "sample"}, {"step", step}, {"text", text}});
}

void JsonObserver::checkpoint(std::int64_t step, std::string_view folder) {
  print_event({{"event", "checkpoint"}, {"step", step}, {"path", folder}});
}

void JsonObserver::result(std::string_view json) {
  result_ = json;
}

void JsonObserver::end(std::string_view status, std::string_view reason) {
  if (status == "failed") return;  // the command's error event says it
  if (status == "paused") return;  // the ranks that go on say the rest
  const Json result = result_.empty() ? Json::object() : Json::parse(result_);
  const Json rate = result.value("tokens_per_second", Json(nullptr));
  Json event{{"event", "result"},
             {"status", status},
             {"reason", reason},
             {"loss", result.value("final_loss", Json(nullptr))},
             {"ms", rate.is_number() ? Json(static_cast<double>(tokens_) / rate.get<double>() * 1e3) : Json(nullptr)}};
  event.update(result);
  print_event(event);
}

void JsonObserver::nothing_left() {
  if (!began_)
    print_event({{"event", "result"}, {"version", 1}, {"status", "finished"}, {"reason", "no step was left"}, {"steps", 0}});
}

}  // namespace consist::launch
