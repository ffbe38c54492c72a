// consist train: one training run, of one or several ranks.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/job/environment.h"
#include "core/plan/plan.h"
#include "core/plugin/plugin_faults.h"
#include "core/runtime/run.h"
#include "launch/advise/run_adviser.h"
#include "launch/commands/commands.h"
#include "launch/exit_status.h"
#include "launch/launcher.h"
#include "launch/run_options.h"
#include "launch/stop_signals.h"

namespace consist::commands {
namespace {

constexpr const char* head =
    "usage: consist train --model NAME [OPTIONS] [--<part>.<option> VALUE]...   (defaults in brackets)\n";
constexpr const char* tail =
    "Options of parts, such as --ddp.bucket-size: consist plugins NAME.\n"
    "example: consist train --model qwen3-tiny --ranks 2 --precision bf16 --steps 100 --archive run.h5\n";

constexpr RunOption own_options[] = {{.spec = {"help", OptionKind::flag, "false", "this text"}}};

/// Whether the first rank of this host says it, so that a mistake is said once and not by every rank: the job takes a rank's own
/// error to all others, which quote it. That a rank died or is stuck is said by everyone.
bool said_by_another(const Error& error, const Job& job) {
  if (job.local_rank() == 0) return false;
  const bool of_a_peer = dynamic_cast<const PeerError*>(&error) != nullptr;
  return !of_a_peer || std::string_view(error.what()).find(" failed: ") != std::string_view::npos;
}

/// Lets signals tell the job as long as it is there.
class Announced {
 public:
  Announced(launch::StopSignals& signals, JoinedJob& job) : signals_(signals) { signals_.set_job(&job); }
  ~Announced() { signals_.set_job(nullptr); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  launch::StopSignals& signals_;
};

/// Throws what a rank was refused for before it joined, once the others know it, too: one of them says it for all.
[[noreturn]] void tell(JoinedJob& job, const std::exception_ptr& refusal) {
  try {
    std::rethrow_exception(refusal);
  } catch (const std::exception& error) {
    job.fail(error.what());
    throw;
  }
}

/// --ranks is what this process starts, or says again how many were started.
void check_ranks(const ParsedRun& parsed, const RunConfig& config, int size) {
  if (!parsed.has("ranks") || config.ranks == size) return;
  const std::string own = std::to_string(config.ranks), of_job = std::to_string(size);
  throw UsageError(parsed.given.at("ranks").said + " is " + own + ", but the environment says that the job has " + of_job +
                   " ranks; leave it out, or give --ranks " + of_job);
}

}  // namespace

void check_train(const Arguments& arguments, int ranks) {
  const ParsedRun parsed = parse_run(arguments, own_options);
  if (parsed.flag("help")) return;
  PluginHost host(plugin_paths(parsed));
  RunConfig config = make_config(parsed, host);
  check_ranks(parsed, config, ranks);
  config.ranks = ranks;
  plan_run(config, host);
  say_plugin_warnings(host);
}

int train(const Arguments& arguments) {
  const ParsedRun parsed = parse_run(arguments, own_options);
  if (parsed.flag("help")) {
    std::printf("%s\n%s\n%s", head, help_text(run_option_table()).c_str(), tail);
    return 0;
  }
  PluginHost host(plugin_paths(parsed));
  RunConfig config = make_config(parsed, host);
  if (parsed.flag("print-config")) {
    print_config(config, host, plugin_paths(parsed));
    return 0;
  }
  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(config.timeout_seconds);
  if (address.size == 1 && config.ranks > 1) {
    plan_run(config, host);
    say_plugin_warnings(host);
    Arguments again{"train"};
    again.insert(again.end(), arguments.begin(), arguments.end());
    return launch::launch_local(config.ranks, again);
  }
  check_ranks(parsed, config, address.size);
  config.ranks = address.size;
  say_plugin_warnings(host, address);
  // Before joining: a plugin that ends the process does so before others wait for this rank.
  std::optional<Plan> plan;
  std::exception_ptr refusal;
  try {
    plan = plan_run(config, host);
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  forbid_restart();
  launch::StopSignals signals(address.local_rank == 0);
  const std::unique_ptr<JoinedJob> job = join_job(address);
  const Announced announced(signals, *job);
  try {
    if (refusal) tell(*job, refusal);
    launch::RunAdviser adviser(host);
    return run_training(std::move(*plan), *job, signals.request(), &adviser) == TrainerResult::finished ? 0 : exit_stopped;
  } catch (const Error& error) {
    // Other ranks that the same signal has reached tell of their end, too: that is no failure to report.
    if (signals.request().requested() && !signals.request().training()) return exit_stopped;
    if (!said_by_another(error, *job)) throw;
    if (dynamic_cast<const PeerError*>(&error) != nullptr) return exit_peer_failed;
    return dynamic_cast<const UsageError*>(&error) != nullptr ? exit_usage : exit_failed;
  }
}

}  // namespace consist::commands
