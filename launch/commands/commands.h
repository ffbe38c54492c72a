// The commands of `consist`. Each is a file launch/commands/<name>.cpp; to add one, declare its row here and put it into the
// table.
#pragma once

#include <string>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/start/restart_options.h"

namespace consist::commands {

extern const Command train_command, compare_command, report_command, explain_command, prove_command, evaluate_command,
    generate_command, predict_command, tune_command, advise_command, show_command, watch_command, verdict_command,
    residual_command, doctor_command, launch_command, bench_command, bench_collectives_command, bench_expect_command,
    calibrate_command, tokenize_command, plugins_command, sdk_command, new_command, check_command, import_command,
    reproduce_command, completion_command, man_command;
extern const Command complete_command;      ///< the scripts of `completion` ask it
extern const Command probe_plugin_command;  ///< `plugins` starts it
extern const Command examine_command;       ///< `doctor` starts it

/// All of them, in the order of `consist --help`.
CommandTable table();

/// Throws what `consist train ARGUMENTS` as one of `ranks` ranks on each of `nodes` nodes would refuse before anything starts:
/// one message now, instead of one from every rank. `least`: nodes with which the job is to go on when others are lost. Returns
/// how its ranks are replaced.
launch::RestartOptions check_train(const std::vector<std::string>& arguments, int ranks, int nodes, int least);

}  // namespace consist::commands
