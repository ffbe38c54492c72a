#include "launch/measure/collective_model.h"

#include <algorithm>
#include <limits>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/plan/links.h"

namespace consist::launch {
namespace {

constexpr double good = 0.9, fair = 0.7;  // shares of the expectation

}  // namespace

const std::vector<std::string>& modelled_collectives() {
  static const std::vector<std::string> names{"all_reduce", "all_gather", "reduce_scatter"};
  return names;
}

namespace {

/// The part that does not depend on the links.
Expectation ring(const std::string& collective, std::int64_t members) {
  const std::vector<std::string>& known = modelled_collectives();
  if (std::find(known.begin(), known.end(), collective) == known.end())
    throw UsageError("--collective is '" + collective + "'; it can be all_reduce, all_gather or reduce_scatter");
  if (members < 2) throw UsageError("--members names " + std::to_string(members) + "; a collective has at least 2");
  const double n = static_cast<double>(members), passes = collective == "all_reduce" ? 2 : 1;
  return {.steps = static_cast<std::int64_t>(passes) * (members - 1), .bus_factor = passes * (n - 1) / n};
}

void set_seconds(Expectation& e, double bytes, double seconds) {
  e.seconds = seconds;
  e.algbw = bytes / e.seconds;
  e.busbw = e.algbw * e.bus_factor;
}

}  // namespace

Expectation expect(const std::string& collective, std::int64_t members, double bytes, const LinkModel& links) {
  Expectation e = ring(collective, members);
  e.bound = links.bandwidth / e.bus_factor;
  set_seconds(e, bytes,
              static_cast<double>(e.steps) * links.latency + e.bus_factor * bytes / (links.efficiency * links.bandwidth));
  return e;
}

Expectation expect(const std::string& collective, std::int64_t members, double bytes, std::shared_ptr<const Machine> machine,
                   const AxisTransports& transports) {
  constexpr std::int64_t most = 65'536;
  constexpr double large = 1024.0 * 1024 * 1024 * 1024;  // of which latency is no part
  Expectation e = ring(collective, members);
  if (members > most) throw UsageError("--members names " + std::to_string(members) + "; with --machine at most 65536");
  const CostModel costs(std::move(machine), Mesh({{"members", static_cast<int>(members)}}), {transports});
  e.transport = costs.transport(0);
  e.unknown = unknown_links(costs, 0);
  const Op& op = registry().get(collective);
  e.bound = large / (costs.transfer_seconds(op, large, 0) * e.bus_factor);
  set_seconds(e, bytes, costs.transfer_seconds(op, e.bus_factor * bytes, 0));
  return e;
}

std::string compare_with_expectation(const Expectation& e, double measured) {
  if (measured > e.bound) {
    return "more than these links can carry: as algbw it needs " + si_text(measured * e.bus_factor) +
           "B/s of each; as busbw it is algbw " + si_text(measured / e.bus_factor) + "B/s, " +
           percent_text(measured / e.bus_factor / e.algbw) + " of what to expect";
  }
  const std::string of =
      percent_text(measured / e.bound) + " of the bound, " + percent_text(measured / e.algbw) + " of what to expect: ";
  if (measured >= good * e.algbw) return of + "good";
  if (measured >= fair * e.algbw) return of + "fair";
  return of + "low; look at the path that was taken";
}

LinkModel fit_links(const std::string& collective, std::int64_t members, std::span<const TimedCall> calls) {
  // seconds = latency a + b / bandwidth; each line divided by its seconds, so that every size counts alike.
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const TimedCall& call : calls) {
    const Expectation e = expect(collective, members, call.bytes, {.bandwidth = 1});
    const double a = static_cast<double>(e.steps) / call.seconds, b = e.bus_factor * call.bytes / call.seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  double latency = determinant > 0 ? (a1 * bb - b1 * ab) / determinant : 0;
  double inverse = determinant > 0 ? (b1 * aa - a1 * ab) / determinant : b1 / bb;
  if (latency < 0) {
    latency = 0;
    inverse = b1 / bb;
  } else if (inverse <= 0) {  // sizes so small that latency is all
    latency = a1 / aa;
    inverse = 0;
  }
  return {.bandwidth = inverse > 0 ? 1 / inverse : std::numeric_limits<double>::infinity(), .efficiency = 1, .latency = latency};
}

}  // namespace consist::launch
