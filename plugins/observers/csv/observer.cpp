// Observer `csv`: a file with a row for each step, and one with a row for each evaluation, for spreadsheets and pandas.
#include "consist/observer.h"

#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/plugin.h"
#include "plugins/observers/common/appended_file.h"

namespace {

using namespace consist;
using observers::AppendedFile;

constexpr std::string_view of_steps = "step,loss,grad_norm,learning_rate,seconds,data_seconds,tokens,sequences,tokens_per_second";
constexpr std::string_view of_mixtures = ",aux_loss,expert_load";  // behind them, where the model has experts
constexpr std::string_view of_evaluations = "step,loss,sequences";

/// The line with the names of columns, behind which come those of the numbers that the model or the loss reports.
std::string header(std::string_view columns, const std::vector<OwnMetric>& metrics) {
  std::string line(columns);
  for (const OwnMetric& metric : metrics) line += "," + metric.name;
  return line + "\n";
}

/// The step that a row begins with; nothing for what is no row.
std::optional<std::int64_t> step_of(std::string_view row) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(row.data(), row.data() + row.size(), step);
  if (error != std::errc() || end == row.data() + row.size() || *end != ',') return std::nullopt;
  return step;
}

/// Takes the rows behind `last_step` out of a file, and a last row that a killed run has left without its end.
void cut_back(const std::string& path, std::string_view header, std::int64_t last_step) {
  constexpr std::int64_t most = std::int64_t{1} << 32;
  const std::string text = read_text(path, most);
  if (!text.starts_with(header))
    throw DataError(path +
                    " does not begin with the columns of this observer, so that the run cannot go on in it; name another "
                    "with --csv.file, or move it away");
  std::size_t end = header.size();
  while (end < text.size()) {
    const std::size_t line_end = text.find('\n', end);
    if (line_end == std::string::npos) break;
    const std::optional<std::int64_t> step = step_of(std::string_view(text).substr(end, line_end - end));
    if (!step)
      throw DataError(path + " has a line that is no row of this observer: '" +
                      text.substr(end, std::min<std::size_t>(60, line_end - end)) + "'");
    if (*step > last_step) break;
    end = line_end + 1;
  }
  if (end == text.size()) return;
  AtomicFile kept(std::filesystem::canonical(path).string());
  kept.write(text.data(), end);
  kept.commit();
}

/// Opens a file of rows: of a run that goes on what it has, otherwise a new one.
std::unique_ptr<AppendedFile> open_rows(const Output& output, std::string_view header, std::int64_t first_step) {
  std::error_code ignored;
  const bool has_rows =
      std::filesystem::is_regular_file(output.path, ignored) && std::filesystem::file_size(output.path, ignored) > 0;
  if (first_step > 0 && has_rows) {
    cut_back(output.path, header, first_step);
    return std::make_unique<AppendedFile>(output.path);
  }
  auto file = std::make_unique<AppendedFile>(output);
  file->append(header);
  return file;
}

template <typename... Values>
std::string printed(const char* format, Values... values) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

class Csv final : public Observer {
 public:
  explicit Csv(const Options& options) : path_(options.text("file")) {
    if (path_.empty()) throw UsageError("--csv.file is not given; it names the file to write, such as run.csv");
    is_stream_ = check_output({"--csv.file", path_, true});  // what is there counts once it is known whether the run goes on
  }

  void begin(const ObservedRun& run) override {
    first_step_ = run.first_step;
    mixture_ = run.mixture;
    overwrite_ = run.overwrite;
    if (first_step_ == 0 && !is_stream_) check_output(output(evaluations_path()));
    evaluated_ = header(of_evaluations, run.metrics);
    steps_ = open_rows(output(path_), header(std::string(of_steps) + std::string(mixture_ ? of_mixtures : ""), run.metrics),
                       first_step_);
    std::error_code ignored;
    // Made with the first evaluation; one that is there is brought to where the run goes on, or goes.
    if (is_stream_ || !std::filesystem::exists(evaluations_path(), ignored)) return;
    if (first_step_ > 0) {
      evaluations_ = open_rows(output(evaluations_path()), evaluated_, first_step_);
    } else {
      std::filesystem::remove(evaluations_path(), ignored);
    }
  }
  void step(const ObservedStep& s) override {
    const auto cell = [](const std::optional<double>& value) { return value ? printed(",%.9g", *value) : std::string(","); };
    steps_->append(printed("%" PRId64 ",%.9g,%.9g,%.9g,%.9g,%.9g,%" PRId64 ",%" PRId64 ",%.9g", s.step, s.loss, s.grad_norm,
                           s.learning_rate, s.seconds, s.data_seconds, s.tokens, s.sequences,
                           static_cast<double>(s.tokens) / s.seconds) +
                   (mixture_ ? cell(s.aux_loss) + cell(s.expert_load) : "") + cells(s.metrics) + "\n");
  }
  void evaluated(const ObservedEvaluation& e) override {
    if (is_stream_) return;  // which has columns of steps
    if (!evaluations_) evaluations_ = open_rows(output(evaluations_path()), evaluated_, first_step_);
    evaluations_->append(printed("%" PRId64 ",%.9g,%" PRId64, e.step, e.loss, e.sequences) + cells(e.metrics) + "\n");
  }

 private:
  static std::string cells(const std::vector<OwnMetricValue>& metrics) {
    std::string text;
    for (const OwnMetricValue& metric : metrics) text += printed(",%.9g", metric.value);
    return text;
  }
  Output output(const std::string& path) const { return {"--csv.file", path, overwrite_}; }
  /// run.csv: run.evaluations.csv
  std::string evaluations_path() const {
    std::filesystem::path path = path_;
    const std::string extension = path.extension().string();
    return path.replace_extension(".evaluations" + (extension.empty() ? ".csv" : extension)).string();
  }

  std::string path_, evaluated_;  // the latter: the names of the columns of evaluations
  std::int64_t first_step_ = 0;
  bool mixture_ = false, overwrite_ = false, is_stream_ = false;
  std::unique_ptr<AppendedFile> steps_, evaluations_;
};

}  // namespace

CONSIST_PLUGIN(observer, consist::Observer, Csv, "csv", "1.0.0",
               "a row for each step and each evaluation, for spreadsheets and pandas");
CONSIST_PLUGIN_OPTIONS({"file", consist::OptionKind::text, "",
                        "the file to write; evaluations go beside it, run.evaluations.csv beside run.csv", "", "", "",
                        consist::OptionRole::results});
