// consist train: one training run, of one or several ranks.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "core/job/environment.h"
#include "core/plugin/plugin_faults.h"
#include "core/runtime/machine_choice.h"
#include "core/runtime/parts.h"
#include "core/runtime/run.h"
#include "launch/commands/commands.h"
#include "launch/exit_status.h"
#include "launch/launcher.h"
#include "launch/run_options.h"
#include "launch/stop_signals.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

// One screen; the test of the help checks that it names every option and its default.
constexpr const char* help =
    "usage: consist train --model NAME [OPTIONS] [--<part>.<option> VALUE]...   (defaults in brackets)\n\n"
    "Configuration\n"
    "  --model NAME|FOLDER       preset, or Hugging Face folder (its weights are loaded)\n"
    "  --strategy S [ddp]        one, or several combined over the ranks: a=2+b\n"
    "  --transport T [socket]    one, or per strategy: a=T1,b=T2\n"
    "  --precision P [fp32]      --device D [auto: the fastest]      --dataset D [text]\n"
    "  --ranks N [1]             started on this machine             --machine M  that is planned for [the device's]\n"
    "  --deepspeed-config FILE   strategy, precision, batch and optimizer from a DeepSpeed JSON, key by key\n"
    "  --deepspeed-set KEY=VALUE in place of the file's value; may be repeated\n"
    "  --plugin PATH             also look for plugins in this file or folder; may be repeated\n"
    "Training\n"
    "  --steps N [100]           --sequence N [512] tokens           --seed N [0]\n"
    "  --batch N [4]             sequences per rank and micro-batch\n"
    "  --accumulation N [1]      micro-batches per step\n"
    "  --global-batch N          sequences per step of all ranks: sets the batch, or with --batch the accumulation\n"
    "  --recompute WHAT [none]   activations made again in backward: none, full, or ops such as swiglu,rms_norm\n"
    "  --recompute-layers A-B    only in these layers, counted from 0\n"
    "  --pack on|off [on]        one product for linears that read the same: q, k and v; gate and up\n"
    "  --freeze PATTERNS         parameters that are not trained, by name: model.embed_tokens.*,model.layers.0.*\n"
    "  --train-only PATTERNS     parameters that alone are trained: *norm*\n"
    "  --learning-rate X [3e-4]  the largest\n"
    "  --schedule S [constant]   constant, linear, cosine or wsd; warm-up and end are options of the part: --wsd.warmup 9\n"
    "  --optimizer O [adamw]     adamw, sgd, lion or muon; its constants are options of the part: --adamw.beta2 0.95\n"
    "  --weight-decay X [0.1]    --clip X [1]: largest global gradient norm; 0: any\n"
    "  --from-scratch            do not load the weights of a model folder\n"
    "Results and limits\n"
    "  --observe NAME,...        observers, plugins that are told of each step\n"
    "  --archive FILE            HDF5 archive of the run             --overwrite  replace it if it is there\n"
    "  --checkpoint FOLDER       --checkpoint-every STEPS [0: last]  --checkpoint-keep N [2]   --resume\n"
    "  --checkpoint-each-epoch   also after each pass through the dataset\n"
    "  --export FOLDER           the trained model in Hugging Face's format\n"
    "  --evaluate-every STEPS [0: never]                             --evaluate-sequences N [64]\n"
    "  --memory-limit BYTES      per rank, such as 2Gi [0: what the device has]\n"
    "  --host-memory-limit BYTES pinned by all ranks of a host [0: what it has available]\n"
    "  --timeout SECONDS [60]    how long a rank may keep the others waiting\n"
    "  --trace FILE              timeline of the last step of all ranks, for Perfetto      --profile  time every instruction\n\n"
    "Options of parts, such as --ddp.bucket-size: consist plugins NAME.\n"
    "example: consist train --model qwen3-tiny --ranks 2 --precision bf16 --steps 100 --archive run.h5\n";

/// Whether the first rank of this host says it, so that a mistake is said once and not by every rank: the job takes a rank's own
/// error to all others, which quote it. That a rank died or is stuck is said by everyone.
bool said_by_another(const Error& error, const Job& job) {
  if (job.local_rank() == 0) return false;
  const bool of_a_peer = dynamic_cast<const PeerError*>(&error) != nullptr;
  return !of_a_peer || std::string_view(error.what()).find(" failed: ") != std::string_view::npos;
}

RunConfig config_of(const ParsedRun& parsed, PluginHost& host) {
  RunConfig config = make_config(parsed, host);
  config.machine = parsed.values["machine"].as<std::string>();
  if (!config.machine.empty()) parse_machine(config.machine);  // says now what is wrong with it
  return config;
}

ParsedRun parse(const Arguments& arguments) {
  po::options_description own;
  own.add_options()("help", "this text")("machine", po::value<std::string>()->default_value(""),
                                         "the machine that is planned for; the default is that of the device");
  return parse_run(arguments, own);
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
  if (parsed.values["ranks"].defaulted() || config.ranks == size) return;
  throw UsageError("--ranks is " + std::to_string(config.ranks) + ", but the environment says that the job has " +
                   std::to_string(size) + " ranks; leave --ranks out");
}

}  // namespace

void check_train(const Arguments& arguments, int ranks) {
  const ParsedRun parsed = parse(arguments);
  if (parsed.values.count("help") != 0) return;
  PluginHost host(plugin_paths(parsed.values));
  RunConfig config = config_of(parsed, host);
  check_ranks(parsed, config, ranks);
  config.ranks = ranks;
  check_configuration(config, host);
  say_plugin_warnings(host);
}

int train(const Arguments& arguments) {
  const ParsedRun parsed = parse(arguments);
  if (parsed.values.count("help") != 0) {
    std::fputs(help, stdout);
    return 0;
  }
  PluginHost host(plugin_paths(parsed.values));
  RunConfig config = config_of(parsed, host);

  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(config.timeout_seconds);
  if (address.size == 1 && config.ranks > 1) {
    check_configuration(config, host);
    say_plugin_warnings(host);
    Arguments again{"train"};
    again.insert(again.end(), arguments.begin(), arguments.end());
    return launch::launch_local(config.ranks, again);
  }
  check_ranks(parsed, config, address.size);
  config.ranks = address.size;
  say_plugin_warnings(host, address);
  // Before joining: a plugin that ends the process does so before others wait for this rank.
  std::optional<Parts> parts;
  std::exception_ptr refusal;
  try {
    parts = check_configuration(config, host);
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  forbid_restart();
  launch::StopSignals signals(address.local_rank == 0);
  const std::unique_ptr<JoinedJob> job = join_job(address);
  const Announced announced(signals, *job);
  try {
    if (refusal) tell(*job, refusal);
    return run_training(config, std::move(*parts), host, *job, signals.request()) == TrainerResult::finished ? 0 : exit_stopped;
  } catch (const Error& error) {
    // Other ranks that the same signal has reached tell of their end, too: that is no failure to report.
    if (signals.request().requested() && !signals.request().training()) return exit_stopped;
    if (!said_by_another(error, *job)) throw;
    if (dynamic_cast<const PeerError*>(&error) != nullptr) return exit_peer_failed;
    return dynamic_cast<const UsageError*>(&error) != nullptr ? exit_usage : exit_failed;
  }
}

}  // namespace consist::commands
