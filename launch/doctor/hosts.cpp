#include "launch/doctor/hosts.h"

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/number.h"
#include "launch/cluster/kubernetes/manifests.h"

namespace consist::doctor {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::system_clock;

constexpr int questions = 5;  ///< about a clock: that with the quickest answer counts

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Facts that should be equal on hosts of one kind.
std::map<std::string, std::string> facts_of(const Facts& facts) {
  std::map<std::string, std::string> known{{"processors", std::to_string(facts.machine.processors)},
                                           {"kernel", facts.machine.read("proc/sys/kernel/osrelease").value_or("")},
                                           {"RDMA devices", std::to_string(facts.rdma.size())},
                                           {"GPUs", std::to_string(facts.gpus.listed.size())}};
  if (!facts.gpus.listed.empty()) {
    known["GPU"] = facts.gpus.listed.front().name;
    known["driver"] = facts.gpus.listed.front().driver;
  }
  return known;
}

HostReport look_at_this_host(const JoinedJob& job, const std::vector<std::string>& plugins) {
  Facts facts = read_facts(this_machine(plugins), ".");
  facts.has_joined = true;
  return {.host = facts.machine.variable(launch::node_name_variable).value_or(std::string(job.host())),
          .ranks = {job.host_ranks().begin(), job.host_ranks().end()},
          .facts = facts_of(facts),
          .report = examine(facts)};
}

/// Both ends: rank 0 asks for the time at `leader`.
void compare_clocks(JoinedJob& job, int leader, HostReport* host) {
  const std::vector<int> both{0, leader};
  double least = std::numeric_limits<double>::infinity();
  for (int question = 0; question < questions; ++question) {
    const Clock::time_point asked = Clock::now();
    job.broadcast("doctor/clock/ask", "", job.timeout(), both);
    const std::string now = std::to_string(std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
    const std::vector<std::string> answers = job.gather("doctor/clock/answer", now, job.timeout(), both);
    const double waited = seconds_since(asked);
    double there = 0;
    if (host == nullptr || !parse_number(answers[1], there) || waited >= least) continue;
    least = waited;
    host->clock_seconds = there - std::chrono::duration<double>(asked.time_since_epoch()).count() - waited / 2;
    host->clock_error_seconds = waited / 2;
  }
}

}  // namespace

std::vector<HostReport> look_at_hosts(JoinedJob& job, const std::vector<std::string>& plugins) {
  const bool leads = job.rank() == job.host_ranks().front();
  const std::string own =
      leads ? json_of(look_at_this_host(job, plugins)).dump(-1, ' ', false, Json::error_handler_t::replace) : "";
  const std::vector<std::string> texts = job.gather("doctor/hosts", own, job.timeout());
  std::vector<HostReport> hosts;
  for (const std::string& text : texts) {
    if (!text.empty()) hosts.push_back(host_from(nlohmann::json::parse(text)));
  }
  if (job.rank() != 0 && leads) compare_clocks(job, job.rank(), nullptr);
  for (HostReport& host : hosts) {
    if (host.ranks.front() != 0) compare_clocks(job, host.ranks.front(), &host);
  }
  return hosts;
}

Json json_of(const HostReport& host) {
  return {{"host", host.host},
          {"ranks", host.ranks},
          {"facts", host.facts},
          {"clock_seconds", host.clock_seconds},
          {"clock_error_seconds", host.clock_error_seconds},
          {"report", json_of(host.report)}};
}

HostReport host_from(const nlohmann::json& json) {
  return {.host = json.at("host").get<std::string>(),
          .ranks = json.at("ranks").get<std::vector<int>>(),
          .facts = json.at("facts").get<std::map<std::string, std::string>>(),
          .clock_seconds = json.at("clock_seconds").get<double>(),
          .clock_error_seconds = json.at("clock_error_seconds").get<double>(),
          .report = report_from(json.at("report"))};
}

}  // namespace consist::doctor
