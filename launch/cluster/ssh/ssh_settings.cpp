#include "launch/cluster/ssh/ssh_settings.h"

#include <algorithm>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/base/split.h"
#include "launch/cluster/cluster_table.h"

namespace consist::launch {
namespace {

constexpr const char* ssh_example =
    "\nA file needs little:\n  [ssh]\n  hosts = [\"node07\", \"node08\"]\n  ranks-per-host = 8\n  folder = "
    "\"/tmp/me/consist\"\ndocs/clusters.md has all keys";

SshHost host_of(const std::string& text, const std::string& said) {
  const std::size_t colon = text.rfind(':');
  SshHost host{.name = text.substr(0, colon), .port = colon == std::string::npos ? "" : text.substr(colon + 1)};
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@";
  int port = 0;
  const bool is_port = colon == std::string::npos || (parse_number(host.port, port) && port > 0 && port < 65536);
  if (host.name.empty() || host.name.starts_with('-') || host.name.find_first_not_of(plain) != std::string::npos || !is_port)
    throw UsageError(said + " has '" + text +
                     "'; a host is a name that ssh takes, such as node07, me@node07 or node07:2222. What else there is to say of "
                     "it stands in ssh's own configuration (~/.ssh/config)");
  return host;
}

/// "8" and ["0", "1"] as the list of devices.
std::string devices_of(const ConfigEntry& entry, const std::vector<std::string>& given) {
  std::string list;
  int count = 0;
  if (!entry.value.is_array()) {
    if (!parse_number(given.front(), count) || count < 1 || count > 1024)
      ClusterTable::refuse(entry, "is '" + given.front() + "'; it is the number of GPUs of a host, or a list of their numbers");
    for (int device = 0; device < count; ++device) list += (list.empty() ? "" : ",") + std::to_string(device);
    return list;
  }
  for (const std::string& device : given) {
    if (!parse_number(device, count) || count < 0) ClusterTable::refuse(entry, "has '" + device + "'; GPUs are numbered from 0");
    list += (list.empty() ? "" : ",") + device;
  }
  return list;
}

}  // namespace

SshSettings read_ssh_settings(const CommandLine& line) {
  SshSettings settings;
  settings.ranks_per_node = 0;
  settings.max_jobs = 1;  // there is no queue: a job has the hosts for itself
  std::vector<std::string> devices;
  ClusterTable table("ssh", ssh_example, settings);
  std::vector<std::string> hosts;
  table.texts("hosts", hosts, [&](const ConfigEntry& entry, const std::vector<std::string>& names) {
    for (const std::string& name : names) settings.hosts.push_back(host_of(name, entry.said));
  });
  table.texts("options", settings.options);
  table.numbers("gpus", devices, [&](const ConfigEntry& entry, const std::vector<std::string>& given) {
    settings.gpus = devices_of(entry, given);
  });
  table.text("master", settings.master);
  table.text("working-folder", settings.working_folder);
  table.number("port", "0", "0..65535", settings.port);
  table.number("ranks-per-host", "1", "1..1024", settings.ranks_per_node);
  table.number("least-hosts", "0", "0..65536", settings.least_nodes);
  table.number("host-wait", "0", "0..86400", settings.node_wait);
  table.read(line);
  if (settings.hosts.empty()) table.lacks("hosts", "the machines on which ranks are started, the one with rank 0 first");
  if (settings.ranks_per_node == 0)
    settings.ranks_per_node = settings.gpus.empty() ? 1 : static_cast<int>(split(settings.gpus, ',').size());
  if (!settings.gpus.empty()) settings.environment.insert(settings.environment.begin(), {"CUDA_VISIBLE_DEVICES", settings.gpus});
  settings.nodes = static_cast<int>(settings.hosts.size());
  if (settings.consist.empty()) settings.consist = own_executable();
  return settings;
}

std::vector<std::string> ssh_words(const SshSettings& settings, const SshHost& host, const std::string& command) {
  std::vector<std::string> words{"ssh", "-T"};
  if (!host.port.empty()) words.insert(words.end(), {"-p", host.port});
  words.insert(words.end(), settings.options.begin(), settings.options.end());
  // Behind those of the file: ssh takes the first value that it is given.
  for (const char* option : {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=3"})
    words.insert(words.end(), {"-o", option});
  words.insert(words.end(), {"--", host.name, command});
  return words;
}

}  // namespace consist::launch
