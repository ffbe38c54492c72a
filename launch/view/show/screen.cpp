#include "launch/view/show/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/base/quantity_text.h"
#include "core/record/progress_line.h"

namespace consist::launch {
namespace {

/// A quantity's name and what is said of it.
struct Field {
  std::string name, text;
};

std::string joined(const std::vector<std::string>& parts, const char* between = ", ") {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : between) + part;
  }
  return text;
}

std::string bytes_of(double bytes) {
  return bytes_text(static_cast<std::int64_t>(bytes));
}

std::string model_text(const RunView& run) {
  const double parameters = number_at(run.program, "/parameters"), frozen = number_at(run.program, "/frozen_model_parameters");
  return joined({text_at(run.config, "/model"), std::isnan(parameters) ? "" : si_text(parameters) + " parameters",
                 frozen > 0 ? si_text(frozen) + " in frozen models" : "",
                 text_at(run.config, "/dataset").empty() ? "" : "dataset " + text_at(run.config, "/dataset")});
}

/// "zero2=2 on 4 ranks: data=4 over tcp 10.0.0.1".
std::string layout_text(const RunView& run) {
  const std::string ranks = text_at(run.config, "/ranks");
  if (ranks.empty()) return {};
  std::string text = text_at(run.config, "/strategy") + " on " + ranks + (ranks == "1" ? " rank" : " ranks");
  const auto axes = run.topology.find("axes");
  if (axes == run.topology.end() || !axes->is_array()) return text;
  for (const auto& axis : *axes)
    text += ", " + text_at(axis, "/name") + "=" + text_at(axis, "/size") + " over " + text_at(axis, "/verified_path");
  return text;
}

std::string training_text(const RunView& run) {
  const double sequences = number_at(run.config, "/global_batch"), sequence = number_at(run.config, "/sequence");
  std::string batch;
  if (sequences > 0 && sequence > 0)
    batch = fixed_text(sequences, 0) + (sequences == 1 ? " sequence of " : " sequences of ") + fixed_text(sequence, 0) + ", " +
            si_text(sequences * sequence) + " tokens a step";
  const std::string rate = text_at(run.config, "/learning_rate");
  return joined({text_at(run.config, "/precision"), text_at(run.config, "/optimizer"),
                 rate.empty() ? "" : text_at(run.config, "/schedule") + " " + rate, batch});
}

std::string machine_text(const RunView& run) {
  const std::string machine = text_at(run.environment, "/planned_for/machine");
  return joined({text_at(run.environment, "/device"),
                 text_at(run.environment, "/host").empty() ? "" : "host " + text_at(run.environment, "/host"),
                 machine.empty() ? "" : "planned for " + machine});
}

/// A bar over the columns that are left beside the figures.
std::string progress_text(const RunView& run, int columns) {
  const std::int64_t done = run.done(), all = run.steps();
  std::string figures = "step " + std::to_string(done) + (all > 0 ? "/" + std::to_string(all) : std::string());
  if (all > 0) figures += ", " + percent_text(static_cast<double>(done) / static_cast<double>(all));
  if (const auto left = seconds_left(run)) figures += ", " + duration_text(*left) + " left";
  const double total = number_at(run.result, "/total_seconds");
  if (!run.running() && !std::isnan(total)) figures += ", took " + duration_text(total);
  const int bar = std::min(40, columns - width_of(figures) - 3);
  if (bar < 10 || all == 0) return figures;
  const auto full = static_cast<int>(std::clamp(done * bar / all, std::int64_t{0}, std::int64_t{bar}));
  return "[" + std::string(static_cast<std::size_t>(full), '#') + std::string(static_cast<std::size_t>(bar - full), '.') + "] " +
         figures;
}

std::string speed_text(const RunView& run) {
  const Speed speed = speed_of(run);
  if (speed.steady.steps == 0) return {};
  std::string text = si_text(speed.tokens_per_second) + " tokens/s (" + si_text(speed.low) + " to " + si_text(speed.high) +
                     "), step " + milliseconds_text(speed.steady.median_seconds) + ", median of " +
                     std::to_string(speed.steady.steps);
  if (speed.data_share > 0.01) text += ", waits for data " + percent_text(speed.data_share);
  return text;
}

std::string bound_text(const RunView& run) {
  if (run.result.empty()) return run.running() ? "stated when the run ends" : "";
  const double share = number_at(run.result, "/share_of_bound"), mfu = number_at(run.result, "/mfu"),
               flops = number_at(run.result, "/model_flops_per_second");
  const std::string problem = text_at(run.result, "/bound_problem");
  return joined({std::isnan(share) ? (problem.empty() ? "none was measured" : "none: " + problem)
                                   : percent_text(share) + " of the rate of its largest linear",
                 std::isnan(mfu) ? "" : "MFU " + percent_text(mfu, 1), flops > 0 ? si_text(flops) + "FLOP/s per rank" : ""});
}

std::string memory_text(const RunView& run) {
  const auto of_rank = [](const nlohmann::json& object, const std::string& path) {
    const double bytes = number_at(object, path), rank = number_at(object, path + "_rank");
    return bytes_of(bytes) + (rank > 0 ? " (rank " + fixed_text(rank, 0) + ")" : "");
  };
  const nlohmann::json& planned = run.result.empty() ? run.program : run.result;
  const std::string at = run.result.empty() ? "/largest" : "";
  if (std::isnan(number_at(planned, at + "/planned_bytes"))) return {};
  const double host = number_at(planned, at + "/planned_host_bytes");
  return joined({"planned " + of_rank(planned, at + "/planned_bytes"),
                 host > 0 ? "on the host " + of_rank(planned, at + "/planned_host_bytes") : "",
                 std::isnan(number_at(run.result, "/measured_peak_bytes"))
                     ? ""
                     : "measured " + of_rank(run.result, "/measured_peak_bytes")});
}

std::string costs_text(const RunView& run, const std::string& price) {
  const Costs costs = costs_of(run, price);
  const bool asked = !price.empty() || !text_at(run.config, "/price").empty();
  if (!asked && !costs.watts) return {};  // nothing was asked and nothing measured
  return joined({costs.per_billion_tokens
                     ? price_text(*costs.per_billion_tokens) + " per billion tokens, " + price_text(*costs.per_hour) + " an hour"
                 : asked && !costs.per_hour ? "no price is given for this device"
                                            : "",
                 costs.joules_per_billion_tokens ? si_text(*costs.joules_per_billion_tokens) + "J per billion tokens (" +
                                                       fixed_text(*costs.watts, 0) + " W a device)"
                                                 : "energy was not measured"});
}

std::string loss_text(const RunView& run) {
  if (run.loss.empty()) return {};
  return fixed_text(run.loss.back(), 4) + " at step " + std::to_string(run.done()) + ", first " + fixed_text(run.loss.front(), 4);
}

std::string own_metrics_text(const std::vector<OwnMetricValue>& metrics) {
  const std::string text = metrics_text(metrics);
  return text.substr(std::min(text.size(), text.find_first_not_of(' ')));
}

/// Those of the last evaluation.
std::vector<OwnMetricValue> metrics_of(const RunView& run) {
  return run.evaluations.empty() ? std::vector<OwnMetricValue>() : run.evaluations.back().metrics;
}

/// As many of the newest as `columns` show.
std::string evaluations_text(const RunView& run, int columns) {
  std::string text;
  for (auto one = run.evaluations.rbegin(); one != run.evaluations.rend(); ++one) {
    const std::string more = fixed_text(one->loss, 4) + " after step " + std::to_string(one->step);
    if (!text.empty() && width_of(text) + width_of(more) + 2 > columns) break;
    text = text.empty() ? more : text + ", " + more;
  }
  return text;
}

/// The result of `consist evaluate`, as one line.
std::string evaluation_text(const RunView& run) {
  const auto figure = [&](const char* path) { return number_at(run.evaluation, path); };
  const double perplexity = figure("/perplexity");
  return joined({"loss " + fixed_text(figure("/loss"), 4) + (std::isnan(perplexity) ? " " + run.loss_unit : ""),
                 std::isnan(perplexity) ? "" : "perplexity " + fixed_text(perplexity, 4), own_metrics_text(metrics_of(run)),
                 fixed_text(figure("/tokens"), 0) + " tokens of " + fixed_text(figure("/sequences"), 0) + " sequences in " +
                     fixed_text(figure("/seconds"), 2) + " s (" + si_text(figure("/tokens_per_second")) + " tokens/s)"});
}

std::vector<Field> fields_of_training(const RunView& run, int room, const std::string& price) {
  return {{"model", model_text(run)},
          {"layout", layout_text(run)},
          {"training", training_text(run)},
          {"machine", machine_text(run)},
          {"progress", progress_text(run, room)},
          {"speed", speed_text(run)},
          {"bound", bound_text(run)},
          {"residual", run.residual},
          {"memory", memory_text(run)},
          {"costs", costs_text(run, price)},
          {"loss", loss_text(run)},
          {"metrics", own_metrics_text(run.metrics)},
          {"evaluated", evaluations_text(run, room)}};
}

std::vector<Field> fields_of_evaluation(const RunView& run) {
  return {{"weights", text_at(run.evaluation, "/weights")}, {"model", model_text(run)},      {"layout", layout_text(run)},
          {"precision", text_at(run.config, "/precision")}, {"machine", machine_text(run)},  {"memory", memory_text(run)},
          {"data", text_at(run.evaluation, "/dataset")},    {"result", evaluation_text(run)}};
}

std::string clock_text(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  char text[16] = "";
  if (::localtime_r(&seconds, &parts) != nullptr) std::strftime(text, sizeof text, "%H:%M:%S", &parts);
  return text;
}

/// "14:02:11 checkpoint: step 100, 12.0 MiB": texts of events are words for people, or objects.
std::string event_text(const ArchiveEvent& event) {
  const nlohmann::json object = archived_json(event.text);
  std::string text;
  if (object.is_object()) {
    for (const auto& [key, value] : object.items()) {
      const bool bytes = key == "bytes" && value.is_number();
      text += (text.empty() ? "" : ", ") +
              (bytes ? bytes_of(value.get<double>()) : key + " " + (value.is_string() ? value.get<std::string>() : value.dump()));
    }
  } else {
    text = event.text;
  }
  return clock_text(event.time) + " " + event.kind + ": " + text;
}

constexpr int name_columns = 10;

/// A field over as many lines as it takes, at most `most`, broken at spaces.
void add_field(std::vector<std::string>& lines, const Field& field, int columns, int most) {
  const int room = std::max(10, columns - name_columns);
  std::string rest = line_of(field.text, 100'000);
  std::string name = field.name;
  for (int n = 1; !rest.empty(); ++n) {
    std::string line = rest;
    if (width_of(rest) > room && n < most) {
      std::size_t end = rest.find(' ');
      for (std::size_t at = end; at != std::string::npos && width_of(rest.substr(0, at)) <= room; at = rest.find(' ', at + 1))
        end = at;
      if (end != std::string::npos) line = rest.substr(0, end);
    }
    rest = n < most && line.size() < rest.size() ? rest.substr(line.size() + 1) : "";
    name.resize(name_columns, ' ');
    lines.push_back(name + line_of(line, room));
    name.clear();
  }
}

/// Two blocks of equally many lines, the second from `column` on.
std::vector<std::string> beside(const std::vector<std::string>& left, const std::vector<std::string>& right, int column) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < left.size(); ++i)
    lines.push_back(
        right[i].empty() ? left[i] : left[i] + std::string(static_cast<std::size_t>(column - width_of(left[i])), ' ') + right[i]);
  return lines;
}

}  // namespace

ScreenSize screen_size(int descriptor) {
  ScreenSize size;
  const auto from_environment = [](const char* variable, int& value) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return;
    const std::string_view digits = text;
    int number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && end == digits.data() + digits.size() && number > 0 && number <= 10'000) value = number;
  };
  from_environment("COLUMNS", size.columns);
  from_environment("LINES", size.rows);
  winsize terminal{};
  if (::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &terminal) == 0) {
    if (terminal.ws_col > 0) size.columns = terminal.ws_col;
    if (terminal.ws_row > 0) size.rows = terminal.ws_row;
  }
  return size;
}

std::string state_text(const RunView& run, double now) {
  if (!run.running()) return run.reason.empty() ? run.status : run.status + ": " + run.reason;
  constexpr double patience = 10, steps = 5;
  const double silence = now - run.written, usual = run.seconds.empty() ? 0 : run.seconds.back();
  if (silence <= std::max(patience, steps * usual)) return run.status;
  return run.status + ", but has written nothing for " + duration_text(silence);
}

std::string summary_line(const RunView& run, double now) {
  std::string text = run.path + ": ";
  if (!run.running() || run.done() == 0) text += state_text(run, now) + (run.done() > 0 ? "  " : "");
  if (run.done() == 0) return text;
  text += "step " + std::to_string(run.done()) + (run.steps() > 0 ? "/" + std::to_string(run.steps()) : std::string());
  text += "  loss " + fixed_text(run.loss.back(), 4);
  text += "  " + si_text(speed_of(run).tokens_per_second) + " tokens/s";
  if (const auto left = seconds_left(run)) text += "  " + duration_text(*left) + " left";
  if (run.running() && state_text(run, now) != run.status) text += "  (" + state_text(run, now) + ")";
  return text;
}

std::vector<std::string> screen_of(const RunView& run, const ScreenSettings& settings) {
  constexpr int least_columns = 40, least_plot = 6, roomy_rows = 40, wide_columns = 120;
  const int columns = std::max(least_columns, settings.size.columns - 1),
            rows = settings.size.rows;  // some terminals wrap at the last
  const int room = columns - name_columns;
  const bool roomy = rows >= roomy_rows;
  std::vector<std::string> lines{line_of(run.path + ": " + state_text(run, settings.now), columns)};
  const bool evaluates = !run.evaluation.empty();
  const std::vector<Field> fields = evaluates ? fields_of_evaluation(run) : fields_of_training(run, room, settings.price);
  for (const Field& field : fields) {
    if (!field.text.empty()) add_field(lines, field, columns, roomy ? 6 : 2);
  }
  const auto shown = std::min<std::size_t>(run.events.size(), roomy ? 8 : 2);
  for (std::size_t i = run.events.size() - shown; i < run.events.size(); ++i)
    lines.push_back(line_of(
        (i + shown == run.events.size() ? "events    " : std::string(name_columns, ' ')) + event_text(run.events[i]), columns));

  if (evaluates) return lines;                                                         // it has no steps, and with them no curves
  const int height = std::max(least_plot, rows - static_cast<int>(lines.size()) - 1);  // the prompt takes a line
  const std::string loss = "loss (" + run.loss_unit + ")";
  std::vector<std::string> curves;
  if (columns < wide_columns) {
    curves = plot(loss, run.step, run.loss, columns, height, settings.dots);
  } else {
    const int half = columns / 2 - 1;
    std::vector<double> rates;
    for (std::size_t i = 0; i < run.seconds.size(); ++i) rates.push_back(run.tokens[i] / run.seconds[i]);
    curves = beside(plot(loss, run.step, run.loss, half, height, settings.dots),
                    plot("tokens/s", run.step, rates, half, height, settings.dots), half + 2);
  }
  lines.insert(lines.end(), curves.begin(), curves.end());
  return lines;
}

}  // namespace consist::launch
