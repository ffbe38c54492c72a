#include <nlohmann/json.hpp>

#include "core/plan/found_model.h"
#include "launch/cli/json_values.h"
#include "launch/search/reproduce/reproduction.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Advice& advice) {
  return {{"options", advice.options},
          {"speed", advice.speed},
          {"device_bytes", advice.bytes},
          {"caution", advice.alternative.caution}};
}

Json published_json(const Reproduction& r) {
  constexpr const char* units[] = {"tokens_per_second_per_gpu", "flops_per_second_per_gpu", "step_seconds"};
  Json meanings = Json::array();
  for (const Counting& counting : r.countings)
    meanings.push_back({{"counting", counting.name},
                        {"words", counting.words},
                        {"flops_per_token", counting.flops},
                        {"tokens_per_second_per_gpu",
                         r.published.unit == Published::Unit::flops ? r.published.value / counting.flops : r.rate}});
  return {{"value", r.published.value},
          {"unit", units[static_cast<std::size_t>(r.published.unit)]},
          {"counting", r.countings[r.counting].name},
          {"tokens_per_second_per_gpu", r.rate},
          {"model_flops_utilization", r.published_mfu()},
          {"by_counting", meanings}};
}

Json missing_json(const Reproduction& r) {
  Json parts = Json::array(), advice = Json::array();
  for (const MissingPart& part : r.parts)
    parts.push_back({{"name", part.name}, {"seconds", part.seconds}, {"tokens_per_second_per_gpu_without", part.rate}});
  for (const Advice& one : r.advice) advice.push_back(json_of(one));
  return {{"parts", parts},
          {"tokens_per_second_per_gpu_without_waiting", r.without_waiting},
          {"products_share_of_peak", r.products_share},
          {"needed_products_share_of_peak", known(r.needed_share)},
          {"best_products_share_of_peak", r.best_share},
          {"advice", advice},
          {"together", r.together.empty() ? Json() : json_of(r.together.front())}};
}

}  // namespace

Json json_of(const Reproduction& r, const Plan& plan) {
  const RunConfig& c = plan.config();
  Json contract = Json::array();
  for (const Term& term : r.contract) contract.push_back({{"what", term.what}, {"words", term.words}, {"source", term.source}});
  Json unmeasured = Json::array();
  for (const StepError& kind : r.prediction.time.error.kinds) {
    if (kind.steps < least_measured_steps) unmeasured.push_back(kind.kind);
  }
  return {{"version", 1},
          {"outcome", name_of(r.outcome())},
          {"model", model_text(c)},
          {"strategy", text_of(c.strategies)},
          {"precision", c.precision},
          {"ranks", c.ranks},
          {"machine", plan.target().machine->name},
          {"published", published_json(r)},
          {"predicted",
           {{"tokens_per_second_per_gpu", r.predicted},
            {"low", r.error ? Json(r.low()) : Json()},
            {"high", r.error ? Json(r.high()) : Json()},
            {"unmeasured_kinds", unmeasured},
            {"step_seconds", r.prediction.time.seconds},
            {"model_flops_utilization", r.prediction.model_flops_utilization},
            {"device_bytes", r.prediction.most_bytes()},
            {"fits", r.prediction.fits()}}},
          {"gap", r.gap()},
          {"contract", contract},
          {"missing", missing_json(r)}};
}

}  // namespace consist::launch
