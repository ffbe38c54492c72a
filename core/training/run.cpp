#include "core/training/run.h"

#include <atomic>
#include <optional>
#include <string>

#include "consist/error.h"
#include "core/archive/archive.h"
#include "core/archive/past.h"
#include "core/config/option_table.h"
#include "core/connect/last_resort.h"
#include "core/plugin/option_roles.h"
#include "core/record/observers.h"
#include "core/record/recorder.h"
#include "core/training/recorded_run.h"

namespace consist {
namespace {

/// Throws unless the archive can be written and, where a run goes on, continued.
void check_archive(const RunConfig& config, PluginHost& host, const Continuation& continuation) {
  if (config.archive.empty()) return;
  const bool goes_on = archive_goes_on(config, continuation.archived());
  check_archive_path(config.archive, config.overwrite || goes_on);
  // Where results go may differ, and where code lies: an archive cannot give these (--config run.h5). So may the length, the
  // machine that is planned for, and what changes neither what a row means nor which values it has.
  const auto may_differ = [&](const std::string& option) {
    if (continuation.ranks_vary && (option == "ranks" || option == "batch" || option == "accumulation")) return true;
    const RunOption* const of_run = find_run_option(option);
    return role_in_file(option, host) != OptionRole::setting ||
           (of_run != nullptr && (is_beside_training(*of_run) || option == "steps" || option == "machine"));
  };
  if (goes_on) check_same_run(config.archive, config.to_json(), RunConfig{}.to_json(), may_differ);
}

}  // namespace

TrainerResult run_training(const Plan& plan, JoinedJob& job, StopRequest& stop, const RunHooks& hooks,
                           const SampleRequest* samples) {
  const RunConfig& config = plan.config();
  if (config.ranks != job.size()) {
    throw UsageError("--ranks is " + std::to_string(config.ranks) + ", but the job has " + std::to_string(job.size()) + " ranks");
  }
  if (job.rank() != 0 && !config.archive.empty()) throw ProgramError("rank 0 alone writes the archive");
  Observers observers;
  std::optional<Recorder> recorder;
  std::atomic<Recorder*> open_recorder{nullptr};
  const auto end_archive = [&](const std::string& reason) {
    if (Recorder* const open = open_recorder.load()) open->finish_failed(reason);
  };
  const LastResort last_resort(job, end_archive);
  try {
    check_archive(config, plan.host(), hooks.continuation);
    if (job.rank() == 0) observers = Observers(config, plan.host());
    if (job.rank() == 0 && hooks.observer) observers.add("--json", hooks.observer);
    return run_recorded({plan, job, stop, hooks, samples}, recorder, open_recorder, observers);
  } catch (const std::exception& error) {
    job.fail(error.what());
    observers.tell([&](Observer& observer) { observer.end("failed", error.what()); });
    try {
      if (recorder) recorder->event("failure", error.what());
      if (recorder) recorder->finish("failed", error.what(), nullptr);
    } catch (const std::exception&) {
      // The archive itself failed: what it held stays readable, and the first error is the one to report.
    }
    throw;
  }
}

}  // namespace consist
