#include "launch/cluster/shell.h"

#include <string_view>

namespace consist::launch {

std::string shell_word(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,=@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

std::string forget_lines() {
  return "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CONSIST_JOB_PORT CONSIST_JOB_TOKEN\n"
         "unset JOB_COMPLETION_INDEX OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE\n";
}

std::string environment_lines(const ClusterSettings& settings, const std::string& of_job) {
  std::string text = of_job;
  for (const auto& [name, value] : settings.environment) text += "export " + name + "=" + shell_word(value) + "\n";
  for (const std::string& line : settings.before) text += line + "\n";
  return text +
         "# NICs pin memory; the ranks inherit this limit.\n"
         "ulimit -l unlimited 2> /dev/null || echo \"consist: the limit of pinned memory stays at $(ulimit -l) KiB\" >&2\n";
}

std::string rank_words(const TrainJob& job, const std::string& config) {
  return " " + job.command + (job.command == "train" ? " --config " + config : "") + shell_words(job.words);
}

bool varies(const ClusterSettings& settings, const Division& division, const TrainJob& job) {
  return job.restarts && settings.least_nodes > 0 && settings.least_nodes < division.nodes;
}

std::string launch_command(const ClusterSettings& settings, const Division& division, const LaunchPlaces& places,
                           const TrainJob& job) {
  std::string text = shell_word(settings.consist) + " launch --nproc " + std::to_string(division.ranks_per_node);
  const bool fewer = varies(settings, division, job);
  const std::string least = fewer ? std::to_string(settings.least_nodes) + ":" : "";
  if (division.nodes > 1)
    text += " --nnodes " + least + std::to_string(division.nodes) + " --node-rank " + places.node + " --master " + places.master;
  if (fewer && settings.node_wait > 0) text += " --node-wait " + std::to_string(settings.node_wait);
  return text + " --" + rank_words(job, places.config);
}

std::string watched_lines(const std::string& command, const std::string& end, const std::string& before_end) {
  return "set -m  # signals that this shell has ignored are not ignored there\n" + command +
         " 3<&- &\n"
         "launcher=$!\n"
         "set +m  # or it says how its jobs end\n"
         "# Signals that the connection names; its end asks for the ranks' end.\n"
         "{ while IFS= read -r signal <&3; do kill -s \"$signal\" \"$launcher\"; done; " +
         before_end + "kill -s " + end +
         " \"$launcher\"; } > /dev/null 2>&1 &\n"
         "watcher=$!\n"
         "wait \"$launcher\"\n"
         "status=$?\n"
         "{ kill \"$watcher\"; wait \"$watcher\"; } 2> /dev/null\n";
}

std::string trapped_lines(const std::string& command, const std::string& signals) {
  return command +
         " &\n"
         "launcher=$!\n"
         "trap 'kill -TERM \"$launcher\" 2> /dev/null' " +
         signals +
         "\n"
         "while :; do wait \"$launcher\"; status=$?; kill -0 \"$launcher\" 2> /dev/null || break; done\n";
}

}  // namespace consist::launch
