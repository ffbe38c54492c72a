// The job's meeting point, and the network devices.
#include "core/base/number.h"
#include "core/base/one_line.h"
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

Finding own_name_resolves(const Facts& facts) {
  const std::string& host = facts.machine.host;
  const std::string problem = facts.machine.resolve_problem(host);
  if (problem.empty()) return ok(one_line(host));
  return warning(one_line(host + ": " + problem),
                 "add the host to /etc/hosts, or to the DNS: other hosts' ranks look for it by that name");
}

Finding loopback_works(const Facts& facts) {
  const std::string problem = facts.machine.loopback_problem();
  if (problem.empty()) return ok("127.0.0.1 answers");
  return wrong(one_line(problem), "ip link set lo up; look at the firewall's rules for lo: ranks of one host meet there");
}

Finding job_is_described(const Facts& facts) {
  if (!facts.job_problem.empty()) return wrong(one_line(facts.job_problem), "docs/jobs.md lists the variables of each launcher");
  if (facts.job.size == 1) return not_applicable("the environment describes no job of several ranks");
  return ok("rank " + std::to_string(facts.job.rank) + " of " + std::to_string(facts.job.size));
}

/// Rank 0's host; empty where none is named.
std::string master_of(const Facts& facts) {
  if (facts.job_problem.empty() && facts.job.size > 1) return facts.job.master_host;
  return facts.machine.variable("MASTER_ADDR").value_or("");
}

Finding master_resolves(const Facts& facts) {
  const std::string master = master_of(facts);
  if (master.empty()) return not_applicable("neither MASTER_ADDR nor a launcher names rank 0's host");
  const std::string problem = facts.machine.resolve_problem(master);
  if (problem.empty()) return ok(one_line(master));
  return wrong(one_line(master + ": " + problem),
               "correct MASTER_ADDR; in Kubernetes it takes a headless service, and pod 0 has a name once it has started");
}

Finding master_port_is_free(const Facts& facts) {
  if (!facts.job_problem.empty()) return unknown("the job's variables are not whole (see job)");
  if (facts.job.size == 1) return not_applicable("the environment describes no job of several ranks");
  if (facts.job.rank != 0) return not_applicable("rank 0 listens, and this is rank " + std::to_string(facts.job.rank));
  if (facts.job.listen_fd >= 0 || facts.has_joined) return not_applicable("the job listens there already");
  const std::string problem = facts.machine.listen_problem(facts.job.master_port);
  if (problem.empty()) return ok("port " + std::to_string(facts.job.master_port) + " is free");
  return wrong(one_line(problem), "end what listens there (ss -ltnp), or set CONSIST_JOB_PORT to another port on all ranks");
}

Finding ports_are_active(const Facts& facts) {
  if (!facts.has_rdma()) return not_applicable("there is no RDMA device");
  std::string down, unplugged;
  int active = 0;
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) {
      active += port.active() ? 1 : 0;
      // Cards of Ethernet often have a second port that is not meant to be used.
      if (!port.active()) append(port.ethernet() ? unplugged : down, port.name + " is " + one_line(port.state));
    }
  }
  const char* remedy =
      "look at cable and switch, and that a subnet manager runs (ibstat, ibv_devinfo); NCCL_IB_HCA leaves ports out";
  if (!down.empty()) return wrong(down, remedy);
  if (active == 0) return wrong(unplugged.empty() ? "no device has a port" : unplugged, remedy);
  return unplugged.empty() ? ok(number_of(active, "active port")) : warning(unplugged, remedy);
}

/// The number that a rate begins with.
double gigabits(const std::string& rate) {
  double value = 0;
  return parse_number(rate.substr(0, rate.find(' ')), value) ? value : 0;
}

Finding rates_are_alike(const Facts& facts) {
  if (!facts.has_rdma()) return not_applicable("there is no RDMA device");
  const RdmaPort* fastest = nullptr;
  std::string slower;
  const auto each_active = [&](const auto& act) {
    for (const RdmaDevice& device : facts.rdma) {
      for (const RdmaPort& port : device.ports) {
        if (port.active() && !port.ethernet()) act(port);
      }
    }
  };
  each_active([&](const RdmaPort& port) {
    if (fastest == nullptr || gigabits(port.rate) > gigabits(fastest->rate)) fastest = &port;
  });
  if (fastest == nullptr) return not_applicable("no port of InfiniBand or EFA is active");
  each_active([&](const RdmaPort& port) {
    if (gigabits(port.rate) < gigabits(fastest->rate)) append(slower, port.name + " has " + one_line(port.rate));
  });
  if (slower.empty()) return ok(one_line(fastest->rate));
  return warning(slower + "; " + fastest->name + " has " + one_line(fastest->rate),
                 "look at the cable (ibstat; mlxlink); a slower port for storage is left out with NCCL_IB_HCA");
}

constexpr Check network_table[] = {
    {"network", "host-name", "the host's own name resolves", own_name_resolves},
    {"network", "loopback", "a connection to 127.0.0.1 works", loopback_works},
    {"network", "job", "the variables of the launcher are whole", job_is_described},
    {"network", "master-address", "the name of rank 0's host resolves", master_resolves},
    {"network", "master-port", "the port at which rank 0 listens is free", master_port_is_free},
    {"network", "rdma-ports", "every port of InfiniBand and EFA is active", ports_are_active},
    {"network", "rdma-rate", "all ports have one rate", rates_are_alike},
};

}  // namespace

std::span<const Check> network_checks() {
  return network_table;
}

}  // namespace consist::doctor
