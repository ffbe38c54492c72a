// Observer `tensorboard`: scalars of steps and evaluations as files of events, which TensorBoard and what else reads them shows.
#include "consist/observer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/observers/tensorboard/event_file.h"

namespace {

using namespace consist;
namespace fs = std::filesystem;

constexpr std::string_view begins = "events.out.tfevents.", ends = ".consist";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The files of this observer in a folder, in the order of their names, which is that of their starts.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begins) && name.ends_with(ends)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Seconds since the epoch in a file's name.
std::int64_t start_of(const fs::path& file) {
  return std::strtoll(file.filename().string().c_str() + begins.size(), nullptr, 10);
}

class TensorBoard final : public Observer {
 public:
  explicit TensorBoard(const Options& options) : folder_(options.text("folder")) {
    if (folder_.empty())
      throw UsageError("--tensorboard.folder is not given; it names the folder of this run's events, such as runs/first");
    std::error_code ignored;
    if (fs::exists(folder_, ignored) && !fs::is_directory(folder_, ignored))
      throw UsageError("--tensorboard.folder " + folder_.string() + " is there, and no folder; name another");
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw SystemError("--tensorboard.folder " + folder_.string() + " cannot be made: " + error.message());
    if (::access(folder_.c_str(), W_OK | X_OK) != 0)
      throw SystemError("--tensorboard.folder " + folder_.string() + " may not be written");
  }

  void begin(const ObservedRun& run) override {
    const std::vector<fs::path> before = files_in(folder_);
    std::int64_t start = static_cast<std::int64_t>(now());
    for (const fs::path& file : before) start = std::max(start, start_of(file) + 1);
    if (run.first_step > 0) {
      for (const fs::path& file : before) tensorboard::cut_back(file.string(), run.first_step);
    } else if (!before.empty() && !run.overwrite) {
      throw UsageError("--tensorboard.folder " + folder_.string() + " has events of an earlier run (" +
                       before.front().filename().string() + "); name another folder, or replace them with --overwrite");
    }
    if (run.first_step == 0) {
      for (const fs::path& file : before) fs::remove(file);
    }
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    file_ = std::make_unique<tensorboard::EventFile>((folder_ / (std::string(begins) + std::to_string(start) + "." + host + "." +
                                                                 std::to_string(::getpid()) + std::string(ends)))
                                                         .string());
    file_->restart(now(), run.first_step + 1);
    if (run.first_step == 0)
      file_->text(now(), 0, "run", "```\n" + run.description + "\n```\n\n```json\n" + run.configuration + "\n```\n");
  }
  void step(const ObservedStep& s) override {
    tensorboard::Scalars values{{"train/loss", s.loss},
                                {"train/grad_norm", s.grad_norm},
                                {"train/learning_rate", s.learning_rate},
                                {"speed/tokens_per_second", static_cast<double>(s.tokens) / s.seconds},
                                {"speed/step_seconds", s.seconds},
                                {"speed/data_seconds", s.data_seconds}};
    if (s.aux_loss) values.emplace_back("train/aux_loss", *s.aux_loss);
    if (s.expert_load) values.emplace_back("train/expert_load", *s.expert_load);
    for (const OwnMetricValue& metric : s.metrics) values.emplace_back("train/" + metric.name, metric.value);
    file_->scalars(now(), s.step, values);
  }
  void evaluated(const ObservedEvaluation& e) override {
    tensorboard::Scalars values{{"evaluation/loss", e.loss}};
    for (const OwnMetricValue& metric : e.metrics) values.emplace_back("evaluation/" + metric.name, metric.value);
    file_->scalars(now(), e.step, values);
  }

 private:
  fs::path folder_;
  std::unique_ptr<tensorboard::EventFile> file_;
};

}  // namespace

CONSIST_PLUGIN(observer, consist::Observer, TensorBoard, "tensorboard", "1.0.0",
               "scalars of steps and evaluations for TensorBoard");
CONSIST_PLUGIN_OPTIONS({"folder", consist::OptionKind::text, "",
                        "where the run's files of events go; it is made if it is not there", "", "", "",
                        consist::OptionRole::results});
