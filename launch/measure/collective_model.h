// A model of ring collectives on links of a known speed: the expected time of a collective, and rates of links from times.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"

namespace consist::launch {

/// The links of a ring's members. A member is what owns a link: a node whose GPUs have added up among themselves first, or a GPU.
struct LinkModel {
  double bandwidth = 0;      ///< bytes per second that a member can send, while it receives as many
  double efficiency = 0.85;  ///< share of it that large messages reach
  double latency = 20e-6;    ///< seconds that each step of the ring takes besides
};

struct Expectation {
  std::int64_t steps = 0;  ///< of the ring: 2(n-1) for all_reduce, n-1 for all_gather and reduce_scatter
  double bus_factor = 0;   ///< bytes that a member must send per byte of data: 2(n-1)/n, or (n-1)/n. busbw = algbw x this
  double bound = 0;        ///< algbw at full bandwidth and without latency: no algorithm passes it that adds up on members
  double seconds = 0;      ///< steps x latency + bus_factor x bytes / (efficiency x bandwidth)
  double algbw = 0, busbw = 0;
  std::string transport = {};  ///< of a machine, by name; empty: none in particular
  std::string unknown = {};    ///< for people: that the machine does not know the transport (AxisLinks::unknown); else empty
};

/// The collectives that have an expectation: all_reduce, all_gather, reduce_scatter.
const std::vector<std::string>& modelled_collectives();

/// Throws UsageError for a collective without a model and for fewer than two members.
Expectation expect(const std::string& collective, std::int64_t members, double bytes, const LinkModel& links);

/// The same of ranks of a machine, one behind the other on its nodes: by its measured or stated rates of this size, of these
/// transports or of none in particular (empty). The bound is that of its largest messages.
Expectation expect(const std::string& collective, std::int64_t members, double bytes, std::shared_ptr<const Machine> machine,
                   const AxisTransports& transports = {});

/// A judgement of a measured algbw: "as expected", or what is wrong with it.
std::string compare_with_expectation(const Expectation& expectation, double measured_algbw);

struct TimedCall {
  double bytes = 0, seconds = 0;
};
/// Latency and bandwidth (efficiency 1) that come nearest to the times, by least squares of relative errors; neither is below 0.
/// Needs two sizes.
LinkModel fit_links(const std::string& collective, std::int64_t members, std::span<const TimedCall> calls);

}  // namespace consist::launch
