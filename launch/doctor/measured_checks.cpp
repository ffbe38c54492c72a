#include "launch/doctor/measured_checks.h"

#include <algorithm>

#include "consist/text.h"
#include "core/base/one_line.h"
#include "core/base/quantity_text.h"
#include "launch/doctor/slow_links.h"
#include "launch/doctor/words.h"
#include "launch/measure/links.h"
#include "launch/measure/statistics.h"

namespace consist::doctor {
namespace {

using launch::LinkFigure;
using launch::RankFigures;
using launch::ShortFigures;

// Devices of one kind differ by a percent or two, and short measurements of one device as much from time to time.
constexpr double slow_device = 1.05, slow_kernels = 1.10, slow_figure = 1.10;

constexpr const char* what_slows_devices =
    "look at power, heat, clocks and other processes of the device while it works (nvidia-smi -q -d "
    "PERFORMANCE,CLOCK,POWER,TEMPERATURE; on processors top and cpupower frequency-info)";

std::string no_file(const ShortFigures& figures) {
  return "the figures of '" + figures.base.name +
         "' are not those of this device; name a file of it with --machine (consist "
         "calibrate writes one)";
}

std::string times_text(double times) {
  return fixed_text(times, 2) + " times as long as by ";
}

/// Median over the ranks of one of their figures.
double middle(const ShortFigures& figures, double RankFigures::*figure) {
  std::vector<double> values;
  for (const RankFigures& rank : figures.ranks) values.push_back(rank.*figure);
  return launch::median(std::move(values));
}

MeasuredCheck kernels(const ShortFigures& figures, bool computing) {
  MeasuredCheck check{.result = {"measured",
                                 computing ? "device-products" : "device-memory",
                                 computing
                                     ? "products and attention take at most 10% longer than by the machine's file"
                                     : "kernels that read and write memory take at most 10% longer than by the machine's file",
                                 {}}};
  const double times = middle(figures, computing ? &RankFigures::products_time : &RankFigures::memory_time);
  const std::string rate = computing ? si_text(middle(figures, &RankFigures::products)) + "FLOP/s"
                                     : si_text(middle(figures, &RankFigures::memory)) + "B/s";
  if (!figures.is_comparable) {
    check.result.finding = not_applicable(rate + "; " + no_file(figures));
    return check;
  }
  const std::string found = rate + " in steps of " + figures.step + ", " + times_text(times) + figures.base.name;
  check.with = computing ? launch::with_times(figures.base, times, 1) : launch::with_times(figures.base, 1, times);
  check.result.finding = times <= slow_figure
                             ? ok(found)
                             : warning(found, std::string(what_slows_devices) +
                                                  "; if the machine is well, consist calibrate writes a file of its own");
  return check;
}

/// One rank beside the median, of two ranks beside the other one.
struct Beside {
  double total = 1, products = 1, memory = 1;  ///< its time over theirs
  double clock = 0;                            ///< theirs, Hz
  bool is_slow() const { return total > slow_device || products > slow_kernels || memory > slow_kernels; }
};

Beside beside_others(const ShortFigures& figures, const RankFigures& rank) {
  return {rank.seconds / middle(figures, &RankFigures::seconds),
          rank.products_time / middle(figures, &RankFigures::products_time),
          rank.memory_time / middle(figures, &RankFigures::memory_time), middle(figures, &RankFigures::clock)};
}

std::string slowness_text(const ShortFigures& figures, const RankFigures& rank, const Beside& beside) {
  const auto more = [](double times) { return percent_text(std::max(0.0, times - 1)); };
  std::string text = name_of_rank(figures, rank.rank) + " is " + percent_text(beside.total - 1) + " slower than its " +
                     (figures.ranks.size() == 2 ? "equal" : std::to_string(figures.ranks.size() - 1) + " equals") +
                     " (products " + more(beside.products) + ", memory " + more(beside.memory);
  if (rank.clock > 0 && beside.clock > 0 && rank.clock < 0.98 * beside.clock)
    text += "; its clock is " + si_text(rank.clock) + "Hz, theirs " + si_text(beside.clock) + "Hz";
  return text + ")";
}

/// The machine with the skew of these ranks: the slowest one over the median.
MachineRates with_skew(const MachineRates& base, const std::vector<double>& seconds) {
  MachineRates machine = base;
  const double slowest = *std::max_element(seconds.begin(), seconds.end());
  machine.rank_skew = {seconds.size() < 2 ? 0 : slowest / launch::median(seconds) - 1, FigureSource::measured_here};
  return machine;
}

MeasuredCheck devices_alike(const ShortFigures& figures) {
  MeasuredCheck check{.result = {"measured", "devices-alike", "no device is more than 5% slower than the others", {}}};
  if (figures.ranks.size() < 2) {
    check.result.finding = not_applicable("one device was measured");
    return check;
  }
  std::string found;
  std::vector<double> all, others;
  for (const RankFigures& rank : figures.ranks) {
    const Beside beside = beside_others(figures, rank);
    all.push_back(rank.seconds);
    if (!beside.is_slow()) {
      others.push_back(rank.seconds);
      continue;
    }
    append(found, slowness_text(figures, rank, beside));
    check.slow += (check.slow.empty() ? "" : ", ") + name_of_rank(figures, rank.rank);
    check.slow_nodes.insert(rank.node);
  }
  check.with = with_skew(figures.base, all);
  if (found.empty()) {
    check.result.finding = ok("the slowest takes " + percent_text(check.with->rank_skew.value, 1) + " longer than the median");
    return check;
  }
  if (!others.empty()) check.without = with_skew(figures.base, others);
  check.result.finding =
      warning(found, "all ranks wait for the slowest: " + std::string(what_slows_devices) + "; leave it out until then");
  return check;
}

/// The rate at which members of a collective send, of the largest size that was measured.
struct LinkRate {
  std::string op;
  int members = 2;
  double measured = 0, by_file = 0;  ///< bytes/s
};

LinkRate rate_of(const LinkRates& measured, const LinkRates& base) {
  const auto curve_of = [](const LinkRates& links, const std::string& op) {
    const auto named = std::find_if(links.curves.begin(), links.curves.end(), [&](const auto& curve) { return curve.op == op; });
    return named != links.curves.end()
               ? named
               : std::find_if(links.curves.begin(), links.curves.end(), [](const auto& curve) { return curve.op == "*"; });
  };
  LinkRate rate{.op = "all_gather"};
  const auto own = curve_of(measured, rate.op), known = curve_of(base, rate.op);
  rate.members = own->members;
  const double bytes = own->rates.back().bytes;
  rate.measured = own->rates.back().rate;
  rate.by_file = bytes / seconds_of(*known, bytes, rate.members);
  return rate;
}

/// The base's links of the transport that was measured; null if it does not know them.
const LinkRates* base_links(const ShortFigures& figures, bool across) {
  const TransportLinks* const known = figures.base.find_transport(figures.transports[across]);
  if (known == nullptr) return nullptr;
  const std::optional<LinkRates>& own = across ? known->network : known->node;
  return own ? &*own : nullptr;
}

/// The machine with these links of the transport that was measured.
MachineRates with_links(MachineRates machine, const ShortFigures& figures, bool across, const LinkRates& links) {
  if (!across) {
    launch::take_links(machine, figures.transports[0], machine.node = links);
    return machine;
  }
  machine.network = links;
  for (TransportLinks& of : machine.transports) {
    if (of.transport == figures.transports[1]) of.network = links;
  }
  return machine;
}

LinkRates scaled(LinkRates links, double times) {
  for (LinkRates::Curve& curve : links.curves) {
    for (LinkRates::Point& point : curve.rates) point.rate *= times;
    curve.latency /= times;
  }
  return links;
}

const LinkRates& measured_links(const ShortFigures& figures, bool across) {
  return across ? figures.measured.network : figures.measured.node;
}

MeasuredCheck links_of_file(const ShortFigures& figures, bool across) {
  MeasuredCheck check{.result = {"measured",
                                 across ? "network-links" : "node-links",
                                 across ? "links between hosts are at most 10% slower than by the machine's file"
                                        : "links within a host are at most 10% slower than by the machine's file",
                                 {}}};
  Finding& finding = check.result.finding;
  if (figures.transports[across].empty()) {
    finding = not_applicable(across ? "one host was measured" : "a host has one rank");
    return check;
  }
  const LinkRates* const base = base_links(figures, across);
  const LinkRates& measured = measured_links(figures, across);
  const LinkRate rate = rate_of(measured, base == nullptr ? measured : *base);
  const std::string found = rate.op + " of " + std::to_string(rate.members) + " over " + figures.transports[across] + " (" +
                            one_line(figures.paths[across]) + "): " + si_text(rate.measured) + "B/s";
  if (!figures.is_comparable || base == nullptr) {
    finding = not_applicable(found + "; " +
                             (base == nullptr && figures.is_comparable
                                  ? "the file of '" + figures.base.name + "' does not know these links"
                                  : no_file(figures)));
    return check;
  }
  check.with = with_links(figures.base, figures, across, measured);
  const std::string both = found + ", " + si_text(rate.by_file) + "B/s by " + figures.base.name;
  finding =
      rate.by_file <= slow_figure * rate.measured
          ? ok(both)
          : warning(both, across ? "look at the path: a slower network than the transport's may have been taken; at cables, "
                                   "ports and counters (ibstat, ethtool -S); NCCL_IB_HCA and NCCL_SOCKET_IFNAME choose"
                                 : "look at the path: NVLink has a path of its own there (P2P); nvidia-smi nvlink -s, nvidia-smi "
                                   "topo -m; a container needs all GPUs and /dev/shm for it");
  return check;
}

/// Links without the slow ones, which have that share of the others' rate: as they were measured, or by a file of which nothing
/// else is believed.
LinkRates usual_links(const ShortFigures& figures, bool across, double share) {
  const LinkRates* const base = base_links(figures, across);
  if (figures.is_comparable && base != nullptr) return scaled(measured_links(figures, across), 1 / share);
  return base != nullptr ? *base : across ? figures.base.network : figures.base.node;
}

MeasuredCheck links_alike(const ShortFigures& figures, bool across) {
  MeasuredCheck check{.result = {"measured",
                                 across ? "network-links-alike" : "node-links-alike",
                                 across ? "no link between hosts has less than 80% of the rate of the others"
                                        : "no link within a host has less than 80% of the rate of the others",
                                 {}}};
  Finding& finding = check.result.finding;
  const SlowLinks slow = find_slow_links(figures, across);
  if (slow.count < 2) {
    finding = not_applicable("there are no two links to compare");
    return check;
  }
  if (slow.text.empty()) {
    finding = ok(number_of(slow.count, "link") + " of " + si_text(slow.least) + "B/s or more each way");
    return check;
  }
  check.slow = slow.blamed;
  check.slow_nodes = slow.nodes;
  finding = warning(slow.text,
                    across ? "look at the port, cable and switch of what is slow (ibstat, mlxlink, ethtool -S), and at other "
                             "traffic; leave the host out until then"
                           : "look at the links of what is slow (nvidia-smi nvlink -s, nvidia-smi topo -m, lspci -vv), and "
                             "at other processes");
  const double share = slow.least / slow.usual;
  const LinkRates usual = usual_links(figures, across, share);
  check.with = with_links(figures.base, figures, across, scaled(usual, share));
  check.without = with_links(figures.base, figures, across, usual);
  return check;
}

MeasuredCheck host_copies(const ShortFigures& figures) {
  MeasuredCheck check{
      .result = {
          "measured", "host-copies", "copies between host and device are at most 10% slower than by the machine's file", {}}};
  Finding& finding = check.result.finding;
  if (!figures.has_host) {
    finding = unknown("copies between host and device could not be measured");
    return check;
  }
  const bool alone = figures.measured.host_shared.source != FigureSource::measured_here;
  const auto rate = [&](const MachineRates& machine) { return alone ? machine.host_alone.value : machine.host_shared.value; };
  const std::string found = si_text(rate(figures.measured)) + "B/s" + (alone ? "" : " of each rank while all copy");
  if (!figures.is_comparable) {
    finding = not_applicable(found + "; " + no_file(figures));
    return check;
  }
  MachineRates with = figures.base;
  with.host_alone = figures.measured.host_alone;
  with.host_both = figures.measured.host_both;
  if (!alone) {
    with.host_shared = figures.measured.host_shared;
    with.host_shared_ranks = figures.measured.host_shared_ranks;
  }
  check.with = std::move(with);
  const std::string both = found + ", " + si_text(rate(figures.base)) + "B/s by " + figures.base.name;
  finding = rate(figures.base) <= slow_figure * rate(figures.measured)
                ? ok(both)
                : warning(both,
                          "look at the PCIe lanes (gpu-pcie; lspci -vv), at the memory that ranks are bound to (numactl -s), and "
                          "at other processes");
  return check;
}

}  // namespace

std::vector<MeasuredCheck> measured_checks(const ShortFigures& figures) {
  std::vector<MeasuredCheck> checks{kernels(figures, true), kernels(figures, false), devices_alike(figures)};
  for (const bool across : {false, true}) {
    checks.push_back(links_of_file(figures, across));
    checks.push_back(links_alike(figures, across));
  }
  checks.push_back(host_copies(figures));
  return checks;
}

MachineRates with_all(const ShortFigures& figures) {
  if (figures.is_comparable) return figures.measured;
  MachineRates machine = figures.base;
  machine.rank_skew = figures.measured.rank_skew;
  for (const bool across : {false, true}) {
    const SlowLinks slow = find_slow_links(figures, across);
    if (slow.text.empty()) continue;
    const double share = slow.least / slow.usual;
    machine = with_links(std::move(machine), figures, across, scaled(usual_links(figures, across, share), share));
  }
  return machine;
}

Result failed_measurement(const std::string& problem) {
  return {"measured", "measurement", "devices and links can be measured",
          wrong(one_line(problem), "a run fails in the same way: see the other checks, and consist bench collectives")};
}

}  // namespace consist::doctor
