#include "launch/search/tune/measure.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/config/option_table.h"
#include "core/plan/parts.h"
#include "launch/cli/run_options.h"
#include "launch/compare/outcome.h"
#include "launch/start/noted_signals.h"

namespace consist::launch {
namespace {

/// A folder for the runs' files, while it lives.
class RunFolder {
 public:
  RunFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "consist-tune-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw SystemError("cannot make a folder for the runs, " + name);
    path_ = name;
  }
  ~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void note(Candidate& candidate, const RunOutcome& outcome, std::int64_t steps) {
  if (outcome.status == "interrupted") throw SystemError("interrupted");
  candidate.measured_steps = steps;
  candidate.measured = 0;
  if (outcome.status == "finished") {
    candidate.measured = outcome.step_seconds;
    return;
  }
  candidate.problem = outcome.reason;
  std::printf("  %s %s: %s\n", printable(text_of(candidate.choices)).c_str(), outcome.status.c_str(),
              printable(outcome.reason).c_str());
}

}  // namespace

RunConfig measured_config(RunConfig config, std::int64_t steps, PluginHost& host) {
  const std::string fields = made_up_fields(make_parts(config, host).fields);
  config.dataset = "synthetic";
  config.steps = steps;
  config.epochs = 0;
  config.from_scratch = true;
  config.evaluate_every = 0;
  for (const RunOption& option : run_option_table()) {
    const bool beside = option.scope == OptionScope::place || option.scope == OptionScope::display;
    if (beside && option.set != nullptr) option.set(config, option.spec.fallback);
  }
  for (const std::string& owner : stray_owners(config, host)) config.plugin_options.erase(owner);
  if (!fields.empty()) config.plugin_options["synthetic"].insert_or_assign("fields", fields);
  return config;
}

bool measured_before(const Candidate& a, const Candidate& b) {
  const auto rank_of = [](const Candidate& c) { return std::tuple(c.measured > 0 ? 0 : 1, -c.measured_steps, c.measured); };
  return rank_of(a) < rank_of(b);
}

void measure(std::vector<Candidate*> best, PluginHost& host, RowRunner& runner) {
  const RunFolder folder;
  for (std::int64_t steps = 10; !best.empty(); steps *= 3) {
    std::size_t begun = 0;
    const auto next = [&]() -> std::optional<RowRun> {
      if (begun == best.size() || noted_signals().number != 0) return std::nullopt;
      const std::size_t row = begun++;
      const std::string label = text_of(best[row]->choices), base = folder / ("run-" + std::to_string(row));
      std::printf("running %s, %lld steps\n", printable(label).c_str(), static_cast<long long>(steps));
      std::fflush(stdout);
      return RowRun{.row = row,
                    .label = label,
                    .config = measured_config(best[row]->config, steps, host),
                    .archive = base + ".h5",
                    .base = base,
                    .overwrite = true};
    };
    runner.run(next, [&](const RowRun& run, const RunOutcome& outcome) { note(*best[run.row], outcome, steps); });
    if (noted_signals().number != 0) throw SystemError("interrupted");
    if (best.size() == 1) break;
    std::stable_sort(best.begin(), best.end(), [](const Candidate* a, const Candidate* b) { return measured_before(*a, *b); });
    best.resize(best.size() / 2);
  }
}

}  // namespace consist::launch
