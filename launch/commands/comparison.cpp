#include "launch/commands/comparison.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/error.h"
#include "consist/text.h"
#include "core/plan/plan.h"
#include "core/record/progress_line.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cluster/train_job.h"
#include "launch/compare/checked_rows.h"
#include "launch/compare/earlier_comparison.h"
#include "launch/compare/effects.h"
#include "launch/compare/events.h"
#include "launch/compare/joined.h"
#include "launch/compare/outcome.h"
#include "launch/compare/places.h"
#include "launch/compare/predicted.h"
#include "launch/compare/row_runner.h"
#include "launch/compare/rows.h"
#include "launch/compare/runs.h"
#include "launch/compare/table.h"
#include "launch/compare/winner.h"
#include "launch/start/noted_signals.h"
#include "launch/view/report/page.h"

namespace consist::commands {
namespace {

namespace fs = std::filesystem;
using namespace launch;

constexpr int default_repeats = 3;
constexpr double longest_repeated_run = 120;  // seconds; longer runs are made once unless --repeats says otherwise

/// The rows, what is known to be wrong with them, and what their runs brought.
class Comparison {
 public:
  Comparison(CompareRequest request, std::optional<Referee> referee, PluginHost& host)
      : request_(std::move(request)),
        referee_(std::move(referee)),
        host_(host),
        runner_(request_.cluster ? make_cluster_runner("compare", request_.cluster, host, request_.plugins)
                                 : make_local_runner(host, request_.plugins)),
        summary_((fs::path(request_.output) / "comparison.h5").string()) {}

  int run() {
    if (!request_.train.empty() || request_.add.empty()) {
      CheckedRows checked = check_rows(request_, host_);
      rows_ = std::move(checked.rows);
      outcomes_ = std::move(checked.outcomes);
      configs_ = std::move(checked.configs);
      settled_ = std::move(checked.settled);
      misspelt_ = checked.misspelt;
      if (request_.dry_run) return print_jobs();
      print_event(comparison_event(rows_, request_.predict ? "" : request_.output));
      if (request_.predict) {
        check_report();
        print();
        report();
        return exit_status();
      }
      refuse_to_replace();
      make_folder();
      check_summary(summary_, request_.overwrite, rows_, request_.add);
      check_report();  // which may be to lie in that folder
      run_rows();
    } else {
      if (request_.has_output) {
        make_folder();
        check_summary(summary_, request_.overwrite, {}, request_.add);
      }
      check_report();
    }
    if (!request_.add.empty()) join_archives(request_.add, rows_, outcomes_);
    if (!rows_.empty() && (!request_.train.empty() || request_.has_output)) write_comparison_archive(summary_, rows_, outcomes_);
    print();
    report();
    return exit_status();
  }

 private:
  bool alone() const { return rows_.size() == 1; }

  std::string archive_of(std::size_t row, int repeat) const {
    return (fs::path(request_.output) / (label_of_repeat(rows_[row], repeat) + ".h5")).string();
  }
  /// Where a repeat has files of its own; empty where it shares them with none.
  std::string place_label(std::size_t row, int repeat) const {
    return alone() && repeat == 1 ? "" : label_of_repeat(rows_[row], repeat);
  }
  std::string config_text(std::size_t row, int repeat) const {
    return config_in_place(settled_[row], place_label(row, repeat), host_).to_json();
  }

  /// Results of other options under the same names are somebody's work: nothing is run before it is clear what becomes of them.
  void refuse_to_replace() {
    if (request_.overwrite) return;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (outcomes_[i].status == "refused" || outcomes_[i].same_program_as != i) continue;
      const int usual = 2 * std::max(request_.repeats, default_repeats);
      for (int repeat = 1; repeat <= usual || fs::exists(archive_of(i, repeat)); ++repeat) {  // --until-sure may make many
        const std::string archive = archive_of(i, repeat);
        if (!fs::exists(archive)) continue;
        const std::string other = other_run(archive, config_text(i, repeat), host_);
        if (other.empty()) continue;
        throw UsageError(archive + " holds " + other +
                         ". Give another folder with --output, or --overwrite to replace what it holds");
      }
    }
  }

  void make_folder() const {
    std::error_code error;
    fs::create_directories(request_.output, error);
    if (error) throw SystemError("cannot make the folder " + request_.output + ": " + error.message());
  }

  /// Repeats are interleaved, every other round backwards: what changes slowly on the machine reaches all rows alike.
  void run_rows() {
    signal_ = &note_signals().number;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (outcomes_[i].status == "refused") {
        std::fprintf(stderr, "%s\n  refused: %s\n", printable(rows_[i].label).c_str(), printable(outcomes_[i].reason).c_str());
      } else if (outcomes_[i].same_program_as == i) {
        order.push_back(i);
      }
    }
    run_round(order, 1, 1);
    const int repeats = *signal_ == 0 ? choose_repeats(order) : 1;
    for (int repeat = 2; repeat <= repeats; ++repeat) run_round(order, repeat, repeats);
    if (referee_) {
      decide_rows(order, repeats);
    } else if (repeats > 1) {
      repeat_further(order, repeats);
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (outcomes_[i].finished() && outcomes_[i].same_program_as == i)
        outcomes_[i].predicted_seconds = predicted_seconds(settled_[i], outcomes_[i].runs.front().archive, host_);
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (const std::size_t run = outcomes_[i].same_program_as; run != i) outcomes_[i] = outcomes_[run];
    }
  }

  /// Runs the rows of `order` once, and leaves those in it that have finished a run, in the opposite order.
  void run_round(std::vector<std::size_t>& order, int repeat, int repeats) {
    std::size_t at = 0;
    const auto next = [&]() -> std::optional<RowRun> {
      while (at < order.size() && *signal_ == 0) {
        const std::string of_repeats =
            repeat == 1 ? "" : ", repeat " + std::to_string(repeat) + (repeat > repeats ? "" : " of " + std::to_string(repeats));
        std::fprintf(stderr, "[%zu/%zu%s] %s\n", at + 1, order.size(), of_repeats.c_str(),
                     printable(rows_[order[at]].label).c_str());
        const std::size_t row = order[at++];
        if (std::optional<RowRun> run = begin_run(row, repeat)) return run;
      }
      return std::nullopt;
    };
    runner_->run(next, [&](const RowRun& run, RunOutcome outcome) { end_run(run.row, run.repeat, std::move(outcome)); });
    order.erase(std::remove_if(order.begin(), order.end(), [&](std::size_t i) { return !outcomes_[i].finished(); }), order.end());
    std::reverse(order.begin(), order.end());
  }

  /// Makes more runs of the rows that other work has disturbed, as long as that helps (a round in which it goes on is the last),
  /// and of those that more repeats are likely to tell from the fastest.
  void repeat_further(const std::vector<std::size_t>& all, int repeats) {
    bool disturbance_goes_on = false;
    for (int repeat = repeats + 1; repeat <= 2 * repeats && *signal_ == 0; ++repeat) {
      std::vector<std::size_t> disturbed, order = contested_rows(rows_, outcomes_);
      std::copy_if(all.begin(), all.end(), std::back_inserter(disturbed), [&](std::size_t i) {
        return !disturbance_goes_on && outcomes_[i].finished() && quiet_runs(outcomes_[i]) < repeats;
      });
      if (!disturbed.empty())
        std::fprintf(stderr, "other work ran beside %zu of the rows: these are run again\n", disturbed.size());
      if (!order.empty()) std::fprintf(stderr, "%zu rows are close to the fastest: these are run again\n", order.size());
      order.insert(order.end(), disturbed.begin(), disturbed.end());
      std::sort(order.begin(), order.end());
      order.erase(std::unique(order.begin(), order.end()), order.end());
      if (order.empty()) return;
      if (repeat % 2 == 0) std::reverse(order.begin(), order.end());
      const auto quiet = [&] {
        int runs = 0;
        for (std::size_t i : disturbed) runs += quiet_runs(outcomes_[i]);
        return runs;
      };
      const int before = quiet();
      run_round(order, repeat, repeats);
      disturbance_goes_on = disturbance_goes_on || (!disturbed.empty() && quiet() == before);
    }
  }

  /// True if a round of these rows ends, as far as the last one tells, before the time of --until-sure is over.
  bool is_time_for(const std::vector<std::size_t>& order) const {
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    for (const std::size_t i : order) seconds += outcomes_[i].runs.back().total_seconds;
    return !order.empty() && seconds < referee_->until_sure();
  }

  /// Judges the rows, and runs those that are not decided again, and the first: half as many rounds as there are, between two
  /// looks, since each look costs confidence.
  void decide_rows(std::vector<std::size_t> order, int repeats) {
    for (int repeat = repeats + 1; *signal_ == 0;) {
      const bool open = referee_->look(rows_, outcomes_);
      std::erase_if(order, [&](std::size_t i) { return !referee_->wants(i); });
      if (!open || !is_time_for(order)) return;
      for (int more = std::max(1, (repeat - 1) / 2); more > 0 && *signal_ == 0 && is_time_for(order); --more)
        run_round(order, repeat++, repeats);
    }
  }

  /// The run of a row, unless it was made before.
  std::optional<RowRun> begin_run(std::size_t row, int repeat) {
    const std::string archive = archive_of(row, repeat);
    print_event(started_event(row, repeat, archive));
    if (!request_.overwrite && is_done(archive, config_text(row, repeat), host_)) {
      std::fprintf(stderr, "  done before\n");
      end_run(row, repeat, read_outcome(archive, settled_[row].price));
      return std::nullopt;
    }
    return row_run(row, repeat);
  }

  RowRun row_run(std::size_t row, int repeat) {
    return {.row = row,
            .repeat = repeat,
            .label = rows_[row].label,
            .config = config_in_place(configs_[row], place_label(row, repeat), host_),
            .archive = archive_of(row, repeat),
            .base = (fs::path(request_.output) / label_of_repeat(rows_[row], repeat)).string(),
            .overwrite = request_.overwrite};
  }

  void end_run(std::size_t row, int repeat, RunOutcome run) {
    run.repeat = repeat;
    take_run(row, std::move(run));
    write_comparison_archive(summary_, rows_, outcomes_);
  }

  void take_run(std::size_t row, RunOutcome run) {
    print_event(ended_event(row, run));
    CompareOutcome& outcome = outcomes_[row];
    failed_ |= run.status == "failed" || run.status == "cut off";
    const std::string whose = request_.cluster ? rows_[row].label + ": " : "";  // several run at once
    if (run.status != "finished") {
      std::fprintf(stderr, "  %s%s: %s\n", printable(whose).c_str(), printable(run.status).c_str(),
                   printable(run.reason).c_str());
      if (!outcome.runs.empty()) return;  // the repeats that finished stand
      outcome.status = run.status;
      outcome.reason = run.reason;
      return;
    }
    const std::string disturbance = disturbance_of(run);
    std::fprintf(stderr, "  %s%s tokens/s, loss %.4f%s\n", printable(whose).c_str(), si_text(run.tokens_per_second).c_str(),
                 run.final_loss, disturbance.empty() ? "" : (" (" + disturbance + ")").c_str());
    outcome.status = "finished";
    outcome.reason.clear();
    outcome.runs.push_back(std::move(run));
    settle(outcomes_);
  }

  /// --dry-run: the first job of each row.
  int print_jobs() {
    int jobs = 0;
    bool any = false;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (outcomes_[i].status == "refused") {
        std::printf("# %s: refused: %s\n", printable(rows_[i].label).c_str(), printable(outcomes_[i].reason).c_str());
      } else if (outcomes_[i].same_program_as == i) {
        any = true;
        RowRun run = row_run(i, 1);
        run.config.archive = run.archive;
        const TrainRequest request{"compare", run.config, request_.plugins, {}, false, jobs++};
        const TrainJob job = plan_train_job(*request_.cluster, request, host_);
        std::printf("# %s\n%s\n", printable(run.label).c_str(), request_.cluster->dry_run_text(job).c_str());
      }
    }
    return any && !misspelt_ ? 0 : exit_usage;
  }

  int choose_repeats(const std::vector<std::size_t>& order) const {
    if (referee_ && referee_->until_sure() > 0) return std::max(request_.repeats, default_repeats);
    if (request_.repeats > 0) return request_.repeats;
    double longest = 0;
    for (std::size_t i : order) {
      if (outcomes_[i].finished()) longest = std::max(longest, outcomes_[i].runs.front().total_seconds);
    }
    if (longest == 0) return 1;
    const bool repeated = longest <= longest_repeated_run;
    std::fprintf(stderr, "a run takes up to %s: %s (--repeats)\n", duration_text(longest).c_str(),
                 repeated ? (std::to_string(default_repeats) + " of each row").c_str()
                          : "each row is run once, and no fastest can be named");
    return repeated ? default_repeats : 1;
  }

  void print() const {
    if (rows_.empty()) return;
    std::vector<CompareOutcome> outcomes = outcomes_;
    for (CompareOutcome& outcome : outcomes) {
      if (outcome.status == "pending") outcome.reason = "not run yet";
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const bool written = !request_.predict && fs::exists(summary_) && (!request_.train.empty() || request_.has_output);
    const std::string text = conditions_text(rows_, outcomes, !request_.add.empty()) + unequal_steps_text(rows_, outcomes) +
                             comparison_text(rows_, outcomes, terminal_columns(STDOUT_FILENO)) + warnings_text(rows_, outcomes) +
                             effects_text(rows_, outcomes) + (referee_ ? referee_->text(rows_) : "") + duration_text(seconds) +
                             (written ? ", " + summary_ : "");
    std::printf("\n%s\n", printable(text).c_str());
    nlohmann::ordered_json event = result_event(rows_, outcomes, written ? summary_ : "");
    if (referee_) event["verdicts"] = referee_->json();
    print_event(event);
  }

  void check_report() const {
    if (!request_.report.empty()) launch::check_report(output_of_report());
  }

  Output output_of_report() const { return report_output("--report", request_.report, request_.overwrite); }

  /// Writes the report, also of a comparison that was stopped: it shows what there is.
  void report() const {
    if (request_.report.empty() || rows_.empty()) return;
    write_report(
        {.output = output_of_report(), .title = "", .command = request_.command, .configurations = !request_.add.empty()}, rows_,
        outcomes_);
    std::printf("%s\n", printable(request_.report).c_str());
  }

  int exit_status() const {
    if (signal_ != nullptr && *signal_ != 0) return 128 + *signal_;
    if (failed_) return exit_failed;
    const bool any = std::any_of(outcomes_.begin(), outcomes_.end(), [](const CompareOutcome& o) { return o.finished(); });
    if (any || misspelt_) return misspelt_ ? exit_usage : referee_ ? referee_->exit_status() : 0;
    const bool too_large =
        std::any_of(outcomes_.begin(), outcomes_.end(), [](const CompareOutcome& o) { return o.prediction.has_value(); });
    return too_large ? exit_failed : exit_usage;
  }

  const CompareRequest request_;
  std::optional<Referee> referee_;
  PluginHost& host_;
  const std::unique_ptr<RowRunner> runner_;
  const std::string summary_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<CompareRow> rows_;
  std::vector<CompareOutcome> outcomes_;
  std::vector<RunConfig> configs_, settled_;  ///< by row, as CheckedRows has them
  const std::atomic<int>* signal_ = nullptr;
  bool failed_ = false;
  bool misspelt_ = false;  ///< a row names what does not exist
};

}  // namespace

int run_comparison(CompareRequest request, std::optional<Referee> referee, PluginHost& host) {
  return Comparison(std::move(request), std::move(referee), host).run();
}

}  // namespace consist::commands
