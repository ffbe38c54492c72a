#include "launch/cluster/ssh/node_script.h"

#include <algorithm>

#include "launch/cluster/shell.h"

namespace consist::launch {
namespace {

/// It is connected to within a minute, as the ssh job tries it.
constexpr int seconds_for_a_spare_host = 90;
/// A host whose connection has ended may be cut off, and the others go on without it: what it does must not end them. Where the
/// command has ended instead, the first host asks the ranks of all for their end.
constexpr const char* lines_of_cut_host = "[ \"$node\" = 0 ] || { sleep 60; kill -s KILL \"$launcher\"; }; ";

std::string checks(const SshSettings& settings, const TrainJob& job) {
  const std::string& working = settings.working_folder.empty() ? job.working_folder : settings.working_folder;
  const std::string consist = shell_word(settings.consist), folder = shell_word(job.folder);
  return "exec 3<&0 < /dev/null\nnode=$1 folder=" + folder +
         "\n"
         "refuse() { printf '\\n" +
         host_refuses + "%s\\n' \"$1\"; exit 1; }\n" + "cd -- " + shell_word(working) + " || refuse 'there is no folder '" +
         shell_word(working) + "\n" + forget_lines() + environment_lines(settings) + "command -v " + consist +
         " > /dev/null || refuse 'there is no program '" + consist + "\n" + "version=$(" + consist +
         " --version 2>&1) || refuse " + consist + "\" does not run: $version\"\n" +
         "said=$(mkdir -p -m 700 -- \"$folder\" 2>&1) || refuse \"$said\"\n"
         "printf '\\n" +
         host_is_ready + "%s\\n' \"${version%%$'\\n'*}\"\n";
}

}  // namespace

std::string node_script(const SshSettings& of_file, const TrainJob& job, const std::string& master) {
  SshSettings settings = of_file;
  const Division division = divide_ranks(settings, job.ranks, "ranks-per-host");
  check_hosts(settings, division, job.ranks, "ssh.hosts");
  const bool has_spare = settings.hosts.size() > static_cast<std::size_t>(division.nodes);
  if (settings.node_wait == 0 && has_spare) settings.node_wait = seconds_for_a_spare_host;
  return checks(settings, job) +
         "# What the connection says: the token, the number of lines of the configuration, its lines.\n"
         "IFS= read -r CONSIST_JOB_TOKEN <&3 && read -r lines <&3 || exit 1\n"
         "config=$folder/run-$node.toml\n"
         "for ((at = 0; at < lines; ++at)); do IFS= read -r line <&3 && printf '%s\\n' \"$line\" || exit 1; done > \"$config\"\n"
         "export CONSIST_JOB_TOKEN\n" +
         watched_lines(launch_command(settings, division, {"\"$node\"", shell_word(master), "\"$config\""}, job), "TERM",
                       varies(settings, division, job) ? lines_of_cut_host : "") +
         "rm -f -- \"$config\"\n"
         "rmdir -- \"$folder\" 2> /dev/null  # unless the archive is in it\n"
         "exit \"$status\"\n";
}

std::string node_input(const std::string& token, const TrainJob& job) {
  std::string config = job.config;
  if (!config.empty() && config.back() != '\n') config += '\n';
  return token + "\n" + std::to_string(std::count(config.begin(), config.end(), '\n')) + "\n" + config;
}

}  // namespace consist::launch
