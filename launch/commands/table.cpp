// The table of commands.
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

constexpr const Command* all[] = {&train_command,        &compare_command,   &report_command,       &explain_command,
                                  &prove_command,        &evaluate_command,  &generate_command,     &predict_command,
                                  &tune_command,         &advise_command,    &import_command,       &reproduce_command,
                                  &show_command,         &watch_command,     &verdict_command,      &residual_command,
                                  &doctor_command,       &launch_command,    &bench_command,        &bench_collectives_command,
                                  &bench_expect_command, &calibrate_command, &tokenize_command,     &plugins_command,
                                  &sdk_command,          &new_command,       &check_command,        &completion_command,
                                  &man_command,          &complete_command,  &probe_plugin_command, &examine_command};

}  // namespace

CommandTable table() {
  return all;
}

}  // namespace consist::commands
