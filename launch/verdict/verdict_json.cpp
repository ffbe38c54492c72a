#include "launch/verdict/verdict_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/cli/json_values.h"
#include "launch/verdict/words.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Side& side) {
  Json archives = Json::array(), seeds = Json::array();
  for (const SideRun& run : side.runs) {
    archives.push_back(run.outcome.archive);
    seeds.push_back(run.seed);
  }
  return {
      {"name", side.name}, {"archives", archives}, {"seeds", seeds}, {"tokens_per_step", side.runs.front().outcome.step_tokens}};
}

Json json_of(const Judgement& judgement, double confidence) {
  const Contrast& contrast = judgement.contrast;
  return {{"quantity", judgement.quantity},
          {"unit", judgement.unit},
          {"call", name_of(judgement.call)},
          {"words", word_of(judgement)},
          {"sentence", sentence_of(judgement, confidence)},
          {"a", known(judgement.a)},
          {"b", known(judgement.b)},
          {"ratio", known(contrast.ratio)},
          {"low", known(contrast.low)},
          {"high", known(contrast.high)},
          {"within", judgement.within},
          {"comparable", judgement.comparable},
          {"problem", text_or_null(judgement.problem)},
          {"method", contrast.known() ? Json(name_of(contrast.method)) : Json(nullptr)},
          {"assumption", text_or_null(judgement.assumption)},
          {"run_spread", known(contrast.run_spread)},
          {"runs_a", contrast.runs_a},
          {"runs_b", contrast.runs_b},
          {"first_step", judgement.last_step == 0 ? Json(nullptr) : Json(judgement.first_step)},
          {"last_step", judgement.last_step == 0 ? Json(nullptr) : Json(judgement.last_step)}};
}

Json json_of(const std::vector<PartChange>& changes) {
  Json list = Json::array();
  for (const PartChange& change : changes) {
    Json one{{"part", change.part}, {"a_seconds", change.a}, {"b_seconds", change.b}, {"change_seconds", change.change()}};
    if (!change.text.empty()) one["instructions"] = change.text;
    list.push_back(std::move(one));
  }
  return list;
}

Json json_of(const SpeedReason& reason) {
  if (!reason.problem.empty()) return {{"problem", reason.problem}};
  return {{"problem", nullptr},
          {"source", reason.simulated ? "simulated" : "measured"},
          {"a_seconds", reason.step_a},
          {"b_seconds", reason.step_b},
          {"change_seconds", reason.step_b - reason.step_a},
          {"parts", json_of(reason.parts)},
          {"instructions", json_of(reason.instructions)}};
}

}  // namespace

const char* name_of(Method method) noexcept {
  switch (method) {
    case Method::exact:
      return "exact";
    case Method::range:
      return "range";
    case Method::paired_runs:
      return "paired_runs";
    case Method::welch_runs:
      return "welch_runs";
    case Method::pooled_runs:
      return "pooled_runs";
    case Method::batch_means:
      return "batch_means";
    case Method::paired_steps:
      return "paired_steps";
    case Method::none:
      break;
  }
  return "none";
}

const char* name_of(Call call) noexcept {
  switch (call) {
    case Call::better:
      return "better";
    case Call::worse:
      return "worse";
    case Call::same:
      return "same";
    case Call::unclear:
      break;
  }
  return "unclear";
}

Json json_of(const Verdict& verdict) {
  Json differences = Json::array(), judgements = Json::array();
  for (const Difference& d : verdict.differences)
    differences.push_back({{"kind", d.kind}, {"name", d.name}, {"a", d.a}, {"b", d.b}, {"prevents", d.prevents}});
  for (const Judgement& judgement : verdict.judgements) judgements.push_back(json_of(judgement, verdict.request.confidence));
  return {{"version", 1},
          {"a", json_of(verdict.a)},
          {"b", json_of(verdict.b)},
          {"differences", differences},
          {"notes", verdict.notes},
          {"confidence", verdict.request.confidence},
          {"by_turns", verdict.turns},
          {"judgements", judgements},
          {"reason", json_of(verdict.reason)},
          {"residuals", {{"a", text_or_null(verdict.residual_a)}, {"b", text_or_null(verdict.residual_b)}}},
          {"slower", verdict.request.slower ? Json(*verdict.request.slower) : Json(nullptr)},
          {"status", verdict.exit_status()},
          {"gate", text_or_null(gate_text(verdict))}};
}

}  // namespace consist::launch
