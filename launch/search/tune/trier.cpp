#include "launch/search/tune/trier.h"

#include <set>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/host.h"
#include "core/base/in_parallel.h"
#include "core/plan/parts.h"

namespace consist::launch {

Trier::Trier(const SearchRequest& request, PluginHost& host)
    : request_(request),
      host_(host),
      space_(request.config, request.settled, *request.machine, host, request.transports),
      found_(space_, request.objective),
      automatic_(automatic_transports(request.config, host, *request.machine)),
      estimates_([this](RunConfig config) { return plan_of(std::move(config)); }, host, making_, request.power) {}

Plan Trier::plan_of(RunConfig config) {
  const std::lock_guard lock(making_);
  return plan_run(std::move(config), host_, {nullptr, request_.machine, false, automatic_});
}

RunConfig Trier::config_of(const Point& point) const {
  RunConfig config = request_.config;
  if (!request_.settled.batch) config.accumulation = 0;
  launch::apply(space_.choices_of(point), config);
  for (const std::string& owner : stray_owners(config, host_)) {
    if (!request_.given_parts.contains(owner)) config.plugin_options.erase(owner);
  }
  const std::int64_t data = space_.layouts()[point.layout].data;
  const std::int64_t known = data * std::max<std::int64_t>(config.batch, 1) * std::max(config.accumulation, 1);
  if (config.global_batch % known != 0)
    throw UsageError("--global-batch " + std::to_string(config.global_batch) + " is no multiple of " + std::to_string(known) +
                     ", the sequences of all ranks" + (config.batch > 0 ? " x batch" : "") +
                     (config.accumulation > 0 ? " x accumulation" : ""));
  if (config.batch == 0) {
    config.batch = config.global_batch / known;
  } else if (config.accumulation == 0) {
    config.accumulation = static_cast<int>(config.global_batch / known);
  }
  return config;
}

Known Trier::try_one(const Point& point, Depth depth) {
  Known known;
  try {
    const RunConfig config = config_of(point);
    if (depth == Depth::quick) known.quick = estimates_.of(config);
    if (known.quick) return known;
    const Plan plan = plan_of(config);
    const Estimate estimate =
        launch::estimate(plan, space_.layouts()[point.layout].stages, depth == Depth::whole, request_.power);
    (estimate.whole ? known.whole : known.simulated) = estimate;
  } catch (const Error& error) {
    known.refused = true;
    const std::lock_guard lock(making_);
    if (refusal_.empty()) refusal_ = error.what();
  }
  return known;
}

void Trier::try_all(const Points& points, Depth depth, double until) {
  Points open;
  std::set<Point> seen;
  for (const Point& point : points) {
    const Known* known = found_.find(point);
    const bool is_done = known != nullptr && (known->refused || known->whole || (depth == Depth::simulated && known->simulated) ||
                                              (depth == Depth::quick && known->is_known()));
    if (!is_done && seen.insert(point).second) open.push_back(point);
  }
  std::vector<std::optional<Known>> results(open.size());
  in_parallel(open.size(), usable_cores(), [&](std::size_t n) {
    if (until > 0 && passed() > until) {
      left_out_ = true;
      return;
    }
    if (request_.progress) {
      const std::lock_guard lock(making_);
      request_.progress(std::to_string(++tried_) + " tried; " + text_of(space_.choices_of(open[n])));
    }
    results[n] = try_one(open[n], depth);
  });
  for (std::size_t n = 0; n < open.size(); ++n) {
    if (results[n]) found_.add(open[n], *results[n]);
  }
}

}  // namespace consist::launch
