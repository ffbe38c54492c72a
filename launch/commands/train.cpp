// consist train: one training run, of one or several ranks.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "consist/error.h"
#include "core/runtime/environment.h"
#include "core/runtime/run.h"
#include "launch/commands/commands.h"
#include "launch/launcher.h"
#include "launch/run_options.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

std::atomic<bool> stop_requested{false};

/// The first signal ends the run after the current step, the second at once.
extern "C" void on_signal(int signal) {
  if (stop_requested.exchange(true)) std::_Exit(128 + signal);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  action.sa_handler = SIG_IGN;  // a file that may grow no further (ulimit -f) is then an error of write(), which names it
  sigaction(SIGXFSZ, &action, nullptr);
}

void print_help() {
  std::printf(
      "usage: consist train --model NAME [OPTIONS] [--<plugin>.<option> VALUE]...\n\n"
      "example: consist train --model qwen3-tiny --ranks 2 --precision bf16 --steps 100 --archive run.h5\n");
  run_options().print(std::cout, 30);
  std::printf("\nOptions of parts, such as --ddp.bucket-size: see consist plugins NAME.\n");
}

}  // namespace

int train(const Arguments& arguments) {
  po::options_description own;
  own.add_options()("help", "this text");
  const ParsedRun parsed = parse_run(arguments, own);
  if (parsed.values.count("help") != 0) {
    print_help();
    return 0;
  }
  PluginHost host(plugin_paths(parsed.values));
  RunConfig config = make_config(parsed.values);
  config.plugin_options = read_plugin_options(parsed.rest, host);
  config.check();

  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(config.timeout_seconds);
  const bool ranks_given = !parsed.values["ranks"].defaulted();
  if (address.size == 1 && config.ranks > 1) {
    Arguments again{"train"};
    again.insert(again.end(), arguments.begin(), arguments.end());
    return launch::launch_local(config.ranks, again);
  }
  if (ranks_given && config.ranks != address.size) {
    throw UsageError("--ranks is " + std::to_string(config.ranks) + ", but the environment says that the job has " + std::to_string(address.size) +
                     " ranks; leave --ranks out");
  }
  config.ranks = address.size;
  catch_signals();
  const std::unique_ptr<JoinedJob> job = join_job(address);
  return run_training(config, host, *job, stop_requested) == TrainerResult::finished ? 0 : 130;
}

}  // namespace consist::commands
