#include "launch/measure/links.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/measure/bench_collectives.h"

namespace consist::launch {
namespace {

struct Timed {
  const char* op;          ///< in programs
  const char* collective;  ///< of collective_names()
};
constexpr Timed timed[] = {
    {"all_reduce", "all_reduce"}, {"all_gather", "all_gather"}, {"reduce_scatter", "reduce_scatter"}, {"send", "send_receive"}};

constexpr std::int64_t least_bytes = 1 << 10, factor = 8;
constexpr double seconds_of_a_row = 0.05;

/// Times that grow with the size, as a curve must: noise may make a larger message faster.
LinkRates::Curve curve_of(const char* op, const std::vector<BenchRow>& rows, int members) {
  LinkRates::Curve curve{.op = op, .members = members, .source = FigureSource::measured_here};
  // busbw is what each rank sends per second.
  const double least = std::min_element(rows.begin(), rows.end(), [](const BenchRow& a, const BenchRow& b) {
                         return a.seconds < b.seconds;
                       })->seconds;
  constexpr double rounding = 1e-9;  // a rate is seconds that were divided: a file's reader must find them in order
  curve.latency = least * (1 - rounding);
  double seconds = least;
  for (const BenchRow& row : rows) {
    const double bytes = row.busbw * row.seconds;
    if (bytes <= 0) continue;
    seconds = std::max(seconds * (1 + rounding), row.seconds);
    curve.rates.push_back({bytes, bytes / seconds});
  }
  return curve;
}

bool are_equal(const LinkRates& one, const LinkRates& other) {
  return std::equal(one.curves.begin(), one.curves.end(), other.curves.begin(), other.curves.end(),
                    [](const LinkRates::Curve& a, const LinkRates::Curve& b) {
                      return a.op == b.op && a.members == b.members && a.latency == b.latency &&
                             std::equal(a.rates.begin(), a.rates.end(), b.rates.begin(), b.rates.end(),
                                        [](const auto& p, const auto& q) { return p.bytes == q.bytes && p.rate == q.rate; });
                    });
}

}  // namespace

void take_links(Machine& machine, const std::string& transport, const LinkRates& node) {
  const TransportLinks* const known = machine.find_transport(transport);
  const std::optional<LinkRates> before = known == nullptr ? std::nullopt : known->node;
  if (known == nullptr) machine.transports.push_back({transport, {}, {}});
  for (TransportLinks& links : machine.transports) {
    if (links.transport == transport || (before && links.node && are_equal(*links.node, *before))) links.node = node;
  }
}

LinkRates measure_links(Job& job, Device& device, Communicator& communicator, std::int64_t most_bytes, const LinkRates& known) {
  LinkRates links{.beside_compute = known.beside_compute, .compute_beside = known.compute_beside};
  const BenchSettings settings{
      .dtype = DType::f32, .min_bytes = least_bytes, .max_bytes = most_bytes, .factor = factor, .seconds = seconds_of_a_row};
  for (const Timed& one : timed) {
    const std::vector<BenchRow> rows = time_collective(job, device, communicator, one.collective, settings);
    for (const BenchRow& row : rows) {
      if (row.wrong > 0)
        throw SystemError(std::string(one.collective) + " of " + std::to_string(row.bytes) + " bytes gave " +
                          std::to_string(row.wrong) + " wrong elements; see consist bench collectives");
    }
    const int members = std::string(one.op) == "send" ? 2 : communicator.size();
    links.curves.push_back(curve_of(one.op, rows, members));
    if (std::string(one.op) == "all_gather") {
      links.curves.push_back(links.curves.back());
      links.curves.back().op = "*";
    }
  }
  return links;
}

}  // namespace consist::launch
