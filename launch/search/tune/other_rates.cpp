#include "launch/search/tune/other_rates.h"

#include <utility>

#include "core/base/quantity_text.h"

namespace consist::launch {
namespace {

constexpr double changed_by = 0.05;

void scale(LinkRates& links, double factor) {
  for (LinkRates::Curve& curve : links.curves) {
    for (LinkRates::Point& point : curve.rates) point.rate *= factor;
  }
}

}  // namespace

Machine with_rates(Machine machine, double links, double clock) {
  scale(machine.node, links);
  scale(machine.network, links);
  for (TransportLinks& transport : machine.transports) {
    for (std::optional<LinkRates>* own : {&transport.node, &transport.network}) {
      if (*own) scale(**own, links);
    }
  }
  machine.device.sustained_clock.value *= clock;
  const double slower = 1 / clock - 1;
  for (DeviceRates::OpTimes& times : machine.device.times) {
    for (DeviceRates::OpTimes::Point& point : times.points)
      point.seconds *= 1 + (point.flops > 0 ? 1 : machine.device.throttling.memory_bound.value) * slower;
  }
  return machine;
}

std::vector<RateChange> rate_changes(const Machine& machine, bool has_links) {
  std::vector<RateChange> changes;
  for (const double by : {-changed_by, changed_by}) {
    const std::string words = " " + percent_text(changed_by) + (by < 0 ? " slower" : " faster");
    if (has_links) changes.push_back({"links" + words, std::make_shared<const Machine>(with_rates(machine, 1 + by, 1))});
    changes.push_back({"clock" + words, std::make_shared<const Machine>(with_rates(machine, 1, 1 + by))});
  }
  return changes;
}

std::string text_of(const std::vector<OtherRates>& rates, const std::vector<std::string>& rows) {
  std::string stays, text;
  for (const OtherRates& rate : rates) {
    if (rate.best == 0) {
      stays += (stays.empty() ? "" : ", ") + rate.change;
      continue;
    }
    text += "With " + rate.change + " '" + rows.at(rate.best) + "' is " + percent_text(rate.gain, 1) +
            " better than the first row.\n";
  }
  if (!stays.empty()) text = "The first row stays the best with " + stays + ".\n" + text;
  return text;
}

}  // namespace consist::launch
