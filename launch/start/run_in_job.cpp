#include "launch/start/run_in_job.h"

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "core/job/environment.h"
#include "core/plan/other_ranks.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/start/continuation.h"
#include "launch/start/launcher.h"

namespace consist::launch {
namespace {

/// True if the first rank of this host reports the error, so that a mistake is reported once, not by every rank: the job takes a
/// rank's own error to all others, which quote it. Every rank reports that a rank died or is stuck.
bool said_by_another(const Error& error, const Job& job) {
  if (job.local_rank() == 0) return false;
  const bool of_a_peer = dynamic_cast<const PeerError*>(&error) != nullptr;
  return !of_a_peer || std::string_view(error.what()).find(" failed: ") != std::string_view::npos;
}

/// Lets signals tell the job as long as it is there.
class Announced {
 public:
  Announced(StopSignals& signals, JoinedJob& job) : signals_(signals) { signals_.set_job(&job); }
  ~Announced() { signals_.set_job(nullptr); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  StopSignals& signals_;
};

/// Tells a launcher that replaces ranks why this one ends.
void tell_launcher(ReplacingLauncher& launcher, const JobAddress& address, const std::exception& error) {
  const auto* const of_a_peer = dynamic_cast<const PeerError*>(&error);
  launcher.tell_end(address.local_rank, of_a_peer != nullptr ? of_a_peer->rank() : address.rank, error.what());
}

std::unique_ptr<JoinedJob> join(const JobAddress& address, ReplacingLauncher& launcher) {
  try {
    return join_job(address);
  } catch (const std::exception& error) {
    tell_launcher(launcher, address, error);
    throw;
  }
}

/// Throws what a rank was refused for before it joined, once the others know it, too: one of them says it for all.
[[noreturn]] void tell(JoinedJob& job, const std::exception_ptr& refusal) {
  try {
    std::rethrow_exception(refusal);
  } catch (const std::exception& error) {
    job.fail(error.what());
    throw;
  }
}

/// Plans once, so that a mistake is an error before any rank exists, and starts the ranks.
int start_ranks(const char* command, const std::vector<std::string>& arguments, const RunConfig& config, PluginHost& host,
                const RestartOptions& restarts) {
  plan_training(config, host);
  say_plugin_warnings(host);
  std::vector<std::string> again{command};
  again.insert(again.end(), arguments.begin(), arguments.end());
  give_back_standard_output();  // rank 0 prints
  return launch_local(config.ranks, again, {.max_restarts = restarts.most, .snapshots = restarts.snapshot_every > 0});
}

/// Throws if failed ranks were to be replaced and nobody would do it.
void check_restarts(const RestartOptions& restarts, const ReplacingLauncher& launcher) {
  if (restarts.most == 0 || launcher.is_there()) return;
  throw UsageError(
      "--max-restarts is " + std::to_string(restarts.most) +
      ", but another launcher than Consist's has started this rank, and would have to replace it; start the ranks of "
      "each machine with consist launch, or leave --max-restarts out");
}

}  // namespace

void check_ranks(const ParsedRun& parsed, const RunConfig& config, int size) {
  if (!parsed.has("ranks") || config.ranks == size) return;
  const std::string own = std::to_string(config.ranks), of_job = std::to_string(size);
  throw UsageError(parsed.given.at("ranks").said + " is " + own + ", but the environment says that the job has " + of_job +
                   " ranks; leave it out, or give --ranks " + of_job);
}

int run_in_job(const char* command, const std::vector<std::string>& arguments, const ParsedRun& parsed, RunConfig config,
               PluginHost& host, const RankBody& body, const RestartOptions& restarts) {
  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(config.timeout_seconds);
  // Consist's own launcher starts all ranks at once; a scheduler's may still be pulling images.
  const bool has_time =
      parsed.has("timeout") && (parsed.is_on_command_line("timeout") || config.timeout_seconds != RunConfig().timeout_seconds);
  if (!has_time && address.joined_fd < 0) address.join_timeout = default_join_timeout;
  ReplacingLauncher launcher(process_environment());
  const bool by_itself = address.size == 1 && !launcher.is_there();
  if (by_itself && (config.ranks > 1 || restarts.most > 0)) return start_ranks(command, arguments, config, host, restarts);
  check_ranks(parsed, config, launcher.most_ranks() > 0 ? launcher.most_ranks() : address.size);
  check_restarts(restarts, launcher);
  config.ranks = launcher.most_ranks() > 0 ? launcher.most_ranks() : address.size;
  if (address.rank != 0) config.archive.clear();  // rank 0 writes it
  say_plugin_warnings(host, address);
  // Before joining: a plugin that ends the process does so before others wait for this rank.
  std::optional<Plan> plan;
  std::exception_ptr refusal;
  try {
    plan.emplace(plan_training(with_ranks(std::move(config), address.size, host), host));
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  const Continuation continuation = launcher.continuation(restarts.snapshot_every, restarts.snapshot_share);
  StopSignals signals(address.local_rank == 0);
  const std::unique_ptr<JoinedJob> job = join(address, launcher);
  const Announced announced(signals, *job);
  try {
    if (refusal) tell(*job, refusal);
    return body(*plan, *job, signals, continuation);
  } catch (const std::exception& thrown) {
    tell_launcher(launcher, address, thrown);
    if (dynamic_cast<const Error*>(&thrown) == nullptr) throw;
    const auto& error = static_cast<const Error&>(thrown);
    // Other ranks that the same signal has reached tell of their end, too: that is no failure to report.
    if (signals.request().requested() && !signals.request().training()) return exit_stopped;
    if (!said_by_another(error, *job)) throw;
    if (dynamic_cast<const PeerError*>(&error) != nullptr) return exit_peer_failed;
    return dynamic_cast<const UsageError*>(&error) != nullptr ? exit_usage : exit_failed;
  }
}

}  // namespace consist::launch
