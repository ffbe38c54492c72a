// consist bench expect: the rate that a collective should reach on described links, beside measured figures.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>

#include "consist/error.h"
#include "consist/text.h"
#include "core/plan/machine_choice.h"
#include "core/plan/transports.h"
#include "launch/commands/commands.h"
#include "launch/measure/collective_model.h"

namespace consist::commands {
namespace {

using launch::Expectation;
using launch::LinkModel;

using enum OptionKind;

constexpr RunOption bench_expect_options[] = {
    valued("collective", choice, "all_reduce", "C", "all_reduce, all_gather or reduce_scatter",
           "all_reduce|all_gather|reduce_scatter"),
    valued("members", text, "", "LIST", "numbers of members, each with a link: GPUs, or nodes whose GPUs reduce first"),
    valued("bytes", real, "", "B", "of the whole data, e.g. 16e9", "0.."),
    valued("machine", text, "", "M",
           "rates of this machine, whose ranks are the members: h200, h100, a100, l40s, cpu or a file, as explain takes it"),
    valued("transport", text, "auto", "T",
           "by the links of this transport that the machine's file has; auto: the fastest that it has within a node and between "
           "nodes"),
    valued("bandwidth", real, "", "B", "bytes per second that a member can send, by the data sheet of its links", "0.."),
    valued("efficiency", real, "0.85", "X", "fraction of the bandwidth that large messages reach; an assumption", "0..1"),
    valued("latency", real, "20e-6", "S", "seconds of a step; an assumption. consist bench collectives measures both", "0.."),
    valued("measured", text, "", "LIST", "measured algbw per entry of --members, in bytes per second, to compare with"),
};

double number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0)
    throw UsageError("--" + option + " is '" + text + "'; it must be a number, not negative, such as 400e9");
  return value;
}

std::vector<double> numbers(const std::string& option, const std::string& list) {
  std::vector<double> all;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) all.push_back(number(option, word));
  return all;
}

double above_zero(const CommandLine& line, const std::string& option) {
  if (line.value(option).empty()) throw UsageError("--" + option + " is missing (see consist bench expect --help)");
  const double value = line.real(option);
  if (value == 0) throw UsageError("--" + option + " must be above 0");
  return value;
}

std::string giga(double rate) {
  return fixed_text(rate / 1e9, 1);
}

void print_expectations(const std::vector<double>& members, const std::vector<double>& measured,
                        const std::function<Expectation(std::int64_t)>& expect) {
  std::printf("#%8s %6s %12s %11s %8s %8s %14s  %s\n", "members", "steps", "busbw/algbw", "time", "algbw", "busbw",
              "bound of algbw", measured.empty() ? "" : "measured algbw");
  std::printf("#%8s %6s %12s %11s %8s %8s %14s\n", "", "", "", "(ms)", "(GB/s)", "(GB/s)", "(GB/s)");
  std::set<std::string> unknown;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Expectation e = expect(std::llround(members[i]));
    if (!e.unknown.empty()) unknown.insert(e.unknown);
    std::printf("%9lld %6lld %12.3f %11.3f %8s %8s %14s", std::llround(members[i]), static_cast<long long>(e.steps), e.bus_factor,
                e.seconds * 1e3, giga(e.algbw).c_str(), giga(e.busbw).c_str(), giga(e.bound).c_str());
    if (!measured.empty())
      std::printf("  %s GB/s, busbw %s: %s", giga(measured[i]).c_str(), giga(measured[i] * e.bus_factor).c_str(),
                  launch::compare_with_expectation(e, measured[i]).c_str());
    std::printf("\n");
  }
  for (const std::string& sentence : unknown) std::printf("# %s\n", sentence.c_str());
}

/// The transports that the value of --transport stands for.
AxisTransports transports_of(const std::string& named, const Machine& machine) {
  if (named != automatic_transport) return {named};
  PluginHost host({});
  const AutomaticTransports automatic = automatic_transports({}, host, machine);
  return {automatic.names[0], automatic.names[1]};
}

int bench_expect(const CommandLine& line) {
  const std::string collective = line.value("collective");
  if (!line.has("members")) throw UsageError("--members is missing (see consist bench expect --help)");
  const std::vector<double> members = numbers("members", line.text("members"));
  const std::vector<double> measured = numbers("measured", line.text("measured"));
  if (!measured.empty() && measured.size() != members.size()) {
    throw UsageError("--measured has " + std::to_string(measured.size()) + " figures for " + std::to_string(members.size()) +
                     " entries of --members");
  }
  const double bytes = above_zero(line, "bytes");
  const bool by_machine = line.has("machine");
  if (by_machine && line.has("bandwidth"))
    throw UsageError("--machine and --bandwidth both say how fast links are; give one of them");
  const std::string transport = line.value("transport");
  if (line.has("transport") && !by_machine)
    throw UsageError(
        "--transport chooses among the links of a machine; give --machine, or describe the links by --bandwidth alone");
  const auto machine = by_machine ? std::make_shared<Machine>(parse_machine(line.text("machine"))) : nullptr;
  if (by_machine) {
    const AxisTransports transports = transports_of(transport, *machine);
    const std::string names = transports.within == transports.across
                                  ? transports.within
                                  : transports.within + " within a node, " + transports.across + " between nodes";
    std::printf("# %s of %sB over %s. An estimate by the rates of %s\n", collective.c_str(), si_text(bytes).c_str(),
                names.c_str(), text_of(*machine).c_str());
    print_expectations(members, measured,
                       [&](std::int64_t n) { return launch::expect(collective, n, bytes, machine, transports); });
    return 0;
  }
  const LinkModel links{
      .bandwidth = above_zero(line, "bandwidth"), .efficiency = above_zero(line, "efficiency"), .latency = line.real("latency")};
  std::printf(
      "# %s of %sB over links of %sB/s each way. An estimate: time = steps x %s us + (busbw / algbw) x bytes / (%s%% of the "
      "link)\n",
      collective.c_str(), si_text(bytes).c_str(), si_text(links.bandwidth).c_str(), fixed_text(links.latency * 1e6, 1).c_str(),
      fixed_text(100 * links.efficiency, 0).c_str());
  print_expectations(members, measured, [&](std::int64_t n) { return launch::expect(collective, n, bytes, links); });
  return 0;
}

}  // namespace

constinit const Command bench_expect_command{
    .name = "bench expect",
    .summary = "estimate what a collective should reach; nothing is run",
    .usage = "--members N,M --bytes B --bandwidth B/S | --machine M [OPTIONS]",
    .about =
        "Estimates what a collective should reach: on links of a known speed, by one formula, or on a machine, by its\n"
        "file. Compares measured figures with the estimate. Nothing is run.\n\n"
        "  algbw = bytes / time. busbw = algbw x 2(n-1)/n for all_reduce, x (n-1)/n for all_gather and reduce_scatter:\n"
        "  what each member sends, so that busbw is what to compare with a link's speed, and algbw is not.\n"
        "  A ring of n takes 2(n-1) steps (all_reduce) or n-1: time = steps x latency + busbw factor x bytes / (efficiency\n"
        "  x bandwidth). No algorithm that adds up on its members passes algbw = bandwidth / busbw factor.\n",
    .own = bench_expect_options,
    .example = "consist bench expect --members 2,8,125 --bytes 16e9 --bandwidth 400e9 --measured 340e9,270e9,156e9\n",
    .run = bench_expect};

}  // namespace consist::commands
