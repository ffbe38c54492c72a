#include "launch/doctor/joint_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/doctor/host_table.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr double clocks_apart = 0.1;  ///< seconds: logs of several hosts are then out of order

std::string names_of(const std::vector<HostReport>& hosts, const std::vector<int>& numbers) {
  if (numbers.size() == hosts.size()) return hosts.size() == 1 ? hosts[0].host : "all hosts";
  std::string names;
  for (const int number : numbers) names += (names.empty() ? "" : ", ") + hosts[static_cast<std::size_t>(number)].host;
  return names;
}

/// The findings of one check on all hosts: one result for those that are alike.
std::vector<Result> joined(const std::vector<HostReport>& hosts, const std::string& check) {
  std::vector<Result> results;
  std::vector<std::vector<int>> found_by;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const Result& result : hosts[host].report.results) {
      if (result.name != check) continue;
      const auto same = std::find_if(results.begin(), results.end(), [&](const Result& known) {
        return known.finding.status == result.finding.status && known.finding.found == result.finding.found &&
               known.finding.remedy == result.finding.remedy;
      });
      const auto at = static_cast<std::size_t>(same - results.begin());
      if (same == results.end()) {
        results.push_back(result);
        found_by.emplace_back();
      }
      found_by[at].push_back(static_cast<int>(host));
    }
  }
  for (std::size_t at = 0; at < results.size(); ++at)
    results[at].finding.found = names_of(hosts, found_by[at]) + ": " + results[at].finding.found;
  return results;
}

/// "driver 570.1 on node03, 580.2 on the others".
std::string difference_in(const std::vector<HostReport>& hosts, const std::string& fact) {
  std::map<std::string, std::vector<int>> by_value;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const auto known = hosts[host].facts.find(fact);
    by_value[known == hosts[host].facts.end() ? "none" : known->second].push_back(static_cast<int>(host));
  }
  if (by_value.size() < 2) return "";
  const auto usual = std::max_element(by_value.begin(), by_value.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text = fact;
  if (usual->second.size() == 1) {  // none is usual
    for (const auto& [value, numbers] : by_value) text += " " + value + " on " + names_of(hosts, numbers) + ",";
    text.pop_back();
    return text;
  }
  for (const auto& [value, numbers] : by_value) {
    if (value != usual->first) text += " " + value + " on " + names_of(hosts, numbers) + ",";
  }
  text.pop_back();
  return text + "; " + usual->first + " on the others";
}

Result hosts_alike(const std::vector<HostReport>& hosts) {
  Result result{"hosts", "hosts-alike", "hosts have the same GPUs, driver, kernel, processors and RDMA devices", {}};
  if (hosts.size() < 2) {
    result.finding = not_applicable("there is one host");
    return result;
  }
  std::set<std::string> names;
  for (const HostReport& host : hosts) {
    for (const auto& [name, value] : host.facts) names.insert(name);
  }
  std::string found, same;
  for (const std::string& name : names) {
    if (const std::string difference = difference_in(hosts, name); !difference.empty()) {
      append(found, difference);
    } else {
      same += (same.empty() ? "" : ", ") + name + " " + hosts[0].facts.at(name);
    }
  }
  result.finding = found.empty() ? ok(same)
                                 : warning(found,
                                           "give all hosts the same driver and system, or leave out those that differ: the "
                                           "slowest sets the pace, and a fault of one driver is a fault of the job");
  return result;
}

/// The clock that most hosts have.
double usual_clock(const std::vector<HostReport>& hosts) {
  std::vector<double> clocks;
  for (const HostReport& host : hosts) clocks.push_back(host.clock_seconds);
  std::sort(clocks.begin(), clocks.end());
  return clocks[(clocks.size() - 1) / 2];
}

Result clocks_agree(const std::vector<HostReport>& hosts) {
  Result result{"hosts", "host-clocks", "clocks of hosts differ by at most 100 ms", {}};
  if (hosts.size() < 2) {
    result.finding = not_applicable("there is one host");
    return result;
  }
  const double usual = usual_clock(hosts);
  std::string found;
  double most = 0;
  for (const HostReport& host : hosts) {
    const double ahead = host.clock_seconds - usual;
    most = std::max(most, std::abs(ahead));
    if (std::abs(ahead) - host.clock_error_seconds <= clocks_apart) continue;
    append(found, host.host + " is " + fixed_text(std::abs(ahead), 1) + " s " + (ahead > 0 ? "ahead" : "behind"));
  }
  result.finding = found.empty() ? ok("they differ by " + milliseconds_text(most) + " or less")
                                 : warning(found,
                                           "run chronyd, ntpd or systemd-timesyncd there (timedatectl): logs of several hosts "
                                           "cannot be put beside one another");
  return result;
}

void leave_out(JointReport& joint, int host, const std::string& why) {
  std::vector<std::string>& reasons = joint.left_out[host];
  if (std::find(reasons.begin(), reasons.end(), why) == reasons.end()) reasons.push_back(why);
}

std::vector<std::string> listed(const JointReport& joint, bool left_out) {
  std::vector<std::string> names;
  for (std::size_t host = 0; host < joint.hosts.size(); ++host) {
    if (joint.left_out.contains(static_cast<int>(host)) == left_out) names.push_back(joint.hosts[host].host);
  }
  return names;
}

std::string comma_list(const std::vector<std::string>& names, const char* quote = "") {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : *quote == '\0' ? "," : ", ") + (quote + name) + quote;
  return list;
}

std::string shell_list(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += " " + name;
  return list;
}

/// A match expression of a nodeSelectorTerm.
Json affinity_of(const std::vector<std::string>& left_out) {
  return {{"key", "kubernetes.io/hostname"}, {"operator", "NotIn"}, {"values", left_out}};
}

/// The lists as the cluster takes them.
std::string advice_text(const JointReport& joint) {
  if (joint.left_out.empty()) return "Keep all " + number_of(static_cast<int>(joint.hosts.size()), "host") + ".\n";
  std::string text = "Leave out:";
  for (const auto& [host, reasons] : joint.left_out) {
    text += (text.ends_with(':') ? " " : ", ") + joint.hosts[static_cast<std::size_t>(host)].host + " (";
    for (const std::string& reason : reasons) text += (text.ends_with('(') ? "" : ", ") + reason;
    text += ")";
  }
  const std::vector<std::string> keep = listed(joint, false);
  if (keep.empty()) return text + ". No host is left.\n";
  text += "\nKeep: " + comma_list(keep) + "\n";
  if (joint.cluster == "slurm")
    return text + "Slurm: --exclude=" + comma_list(listed(joint, true)) + " (or --nodelist=" + comma_list(keep) + ")\n";
  if (joint.cluster == "kubernetes")
    return text + "Kubernetes: kubectl cordon" + shell_list(listed(joint, true)) +
           ", or in nodeAffinity: " + affinity_of(listed(joint, true)).dump() + "\n";
  return text + "cluster.toml: hosts = [" + comma_list(keep, "\"") + "]\n";
}

}  // namespace

JointReport join(const std::string& cluster, std::vector<HostReport> hosts) {
  JointReport joint{.cluster = cluster, .hosts = std::move(hosts), .all = {}, .left_out = {}};
  joint.all.host = number_of(static_cast<int>(joint.hosts.size()), "host");
  std::vector<std::string> names;
  for (const HostReport& host : joint.hosts) {
    for (const Result& result : host.report.results) {
      if (std::find(names.begin(), names.end(), result.name) == names.end()) names.push_back(result.name);
    }
  }
  std::vector<Result> results;
  for (const std::string& name : names) {
    for (Result& result : joined(joint.hosts, name)) results.push_back(std::move(result));
  }
  results.push_back(hosts_alike(joint.hosts));
  results.push_back(clocks_agree(joint.hosts));
  add(joint.all, std::move(results));
  for (std::size_t host = 0; host < joint.hosts.size(); ++host) {
    for (const Result& result : joint.hosts[host].report.results) {
      if (result.finding.status == Status::wrong) leave_out(joint, static_cast<int>(host), result.name);
    }
  }
  return joint;
}

void add_measured(JointReport& joint, const std::vector<MeasuredCheck>& checks) {
  std::vector<Result> results;
  for (const MeasuredCheck& check : checks) {
    results.push_back(check.result);
    for (const int host : check.slow_nodes) leave_out(joint, host, check.result.name);
  }
  add(joint.all, std::move(results));
}

std::string report_text(const JointReport& joint, bool all) {
  return report_text(joint.all, all) + "\n" + host_table(joint) + "\n" + advice_text(joint);
}

Json json_of(const JointReport& joint) {
  Json json = json_of(joint.all);
  json["cluster"] = joint.cluster;
  json["hosts"] = Json::array();
  for (const HostReport& host : joint.hosts) json["hosts"].push_back(json_of(host));
  const std::vector<std::string> keep = listed(joint, false), out = listed(joint, true);
  json["keep"] = keep;
  json["leave_out"] = out;
  json["slurm"] = joint.cluster == "slurm" ? Json{{"nodelist", comma_list(keep)}, {"exclude", comma_list(out)}} : Json();
  json["kubernetes"] = joint.cluster == "kubernetes" && !out.empty() ? affinity_of(out) : Json();
  return json;
}

}  // namespace consist::doctor
