#include "launch/search/advise/advice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "consist/text.h"

namespace consist::launch {
namespace {

constexpr double as_fast = 0.99;   // of one subject's fastest
constexpr double left_free = 0.1;  // of the memory, by what takes more of it

double speed_over(const Prediction& prediction, const Prediction& base) {
  return prediction.tokens_per_second / base.tokens_per_second;
}

bool is_worth_saying(const Trial& trial, const Prediction& base, const AdviceRequest& request) {
  const bool takes_more = trial.prediction.most_bytes() > base.most_bytes();
  return speed_over(trial.prediction, base) >= request.least_gain &&
         request.room.fits(trial.prediction, takes_more ? left_free : 0);
}

Advice advice_of(Trial trial, const Prediction& base, const Plan& plan, PluginHost& host) {
  Advice advice{.options = text_of(trial.alternative.choices, plan.config(), host),
                .speed = speed_over(trial.prediction, base),
                .more_bytes = trial.prediction.most_bytes() - base.most_bytes(),
                .bytes = trial.prediction.most_bytes()};
  advice.alternative = std::move(trial.alternative);
  return advice;
}

/// True if `other` makes the same choices, and possibly more.
bool is_part_of(const Advice& advice, const Advice& other) {
  const Choices& all = other.alternative.choices;
  return std::all_of(advice.alternative.choices.begin(), advice.alternative.choices.end(), [&](const Choice& choice) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Choice& c) { return c.option == choice.option && c.value == choice.value; });
  });
}

/// Choices of both; empty if they set an option to different values.
Choices joined(const Choices& first, const Choices& second) {
  Choices all = first;
  for (const Choice& choice : second) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Choice& c) { return c.option == choice.option; });
    if (same == all.end()) {
      all.push_back(choice);
    } else if (same->value != choice.value) {
      return {};
    }
  }
  return all;
}

}  // namespace

std::vector<Advice> advise(const Plan& plan, PluginHost& host, const Prediction& base, const AdviceRequest& request) {
  std::vector<Alternative> alternatives = alternatives_of(plan, host);
  std::erase_if(alternatives, [](const Alternative& a) { return a.aim == Aim::memory; });
  std::map<std::string, std::vector<Trial>> by_subject;
  for (Trial& trial : try_alternatives(plan, host, std::move(alternatives), request.limits)) {
    if (is_worth_saying(trial, base, request)) by_subject[trial.alternative.subject].push_back(std::move(trial));
  }
  std::vector<Advice> found;
  for (auto& [subject, trials] : by_subject) {
    double best = 0;
    for (const Trial& trial : trials) best = std::max(best, trial.prediction.tokens_per_second);
    std::erase_if(trials, [&](const Trial& trial) { return trial.prediction.tokens_per_second < as_fast * best; });
    const auto smallest = std::min_element(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
      return a.prediction.most_bytes() < b.prediction.most_bytes();
    });
    found.push_back(advice_of(std::move(*smallest), base, plan, host));
  }
  std::stable_sort(found.begin(), found.end(), [](const Advice& a, const Advice& b) { return a.speed > b.speed; });
  std::vector<Advice> said;
  for (Advice& one : found) {
    const bool part = std::any_of(said.begin(), said.end(), [&](const Advice& faster) { return is_part_of(one, faster); });
    if (!part) said.push_back(std::move(one));
  }
  return said;
}

std::vector<Advice> together(const Plan& plan, PluginHost& host, const Prediction& base, const std::vector<Advice>& advice,
                             const AdviceRequest& request) {
  if (advice.size() < 2) return {};
  Alternative all = advice.front().alternative;
  Advice best = advice.front();
  int changes = 1;
  for (std::size_t n = 1; n < advice.size(); ++n) {
    const Alternative& next = advice[n].alternative;
    Alternative more{"together", joined(all.choices, next.choices), Aim::speed, all.caution};
    if (more.choices.empty()) continue;
    if (!next.caution.empty()) more.caution += (more.caution.empty() ? "" : "; ") + next.caution;
    std::vector<Trial> trials = try_alternatives(plan, host, {more}, request.limits);
    if (trials.empty() || !is_worth_saying(trials.front(), base, request)) continue;
    if (speed_over(trials.front().prediction, base) < request.least_gain * best.speed) continue;
    best = advice_of(std::move(trials.front()), base, plan, host);
    all = std::move(more);
    ++changes;
  }
  return changes > 1 ? std::vector<Advice>{std::move(best)} : std::vector<Advice>{};
}

std::vector<Advice> without_caution(std::vector<Advice> advice) {
  std::erase_if(advice, [](const Advice& one) { return !one.alternative.caution.empty(); });
  return advice;
}

std::string text_of(const Advice& advice) {
  std::string text = advice.options + ": " + fixed_text(advice.speed, 2) + " times as fast, ";
  text += advice.more_bytes == 0 ? "as much memory"
                                 : bytes_text(std::abs(advice.more_bytes)) + (advice.more_bytes < 0 ? " less" : " more");
  if (!advice.alternative.caution.empty()) text += "; " + advice.alternative.caution;
  return text;
}

}  // namespace consist::launch
