#include "launch/compare/effects.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "consist/text.h"
#include "launch/compare/winner.h"

namespace consist::launch {
namespace {

/// Ratios of pairs, as their geometric mean.
class Ratio {
 public:
  /// Pairs in which one of the two is zero say nothing of a ratio, except that both are.
  void add(double value, double reference) {
    if (value > 0 && reference > 0) {
      logarithms_ += std::log(value / reference);
      ++count_;
    } else if (value != reference) {
      one_is_zero_ = true;
    }
  }
  /// ", memory 0.79x"; nothing if all pairs are equal.
  std::string text(const char* what) const {
    const double mean = std::exp(logarithms_ / std::max(count_, 1));
    if (one_is_zero_ || count_ == 0 || std::abs(mean - 1) < 0.005) return "";
    return std::string(", ") + what + " " + fixed_text(mean, 2) + "x";
  }

 private:
  double logarithms_ = 0;
  int count_ = 0;
  bool one_is_zero_ = false;
};

/// True if the rows differ in option `option` alone; an option that one of them does not have does not count.
bool differ_only_in(const CompareRow& a, const CompareRow& b, std::size_t option) {
  for (std::size_t i = 0; i < a.varied.size(); ++i) {
    const std::string &left = a.varied[i].second, &right = b.varied[i].second;
    if (i != option && (left == no_such_option || right == no_such_option)) continue;
    if ((left == right) == (i == option)) return false;
  }
  return true;
}

/// The effect of one value of an option relative to another.
struct Effect {
  Ratio memory, host_memory, sent, collectives;
  std::vector<double> pairs;  ///< ratios of speeds
  double squares = 0;         ///< sum over the pairs' rows of their squared half intervals, of logarithms
  bool repeated = true;       ///< all rows of the pairs have intervals
  bool simulated = true;      ///< all rows of the pairs are
  std::string disturbance;

  void add(const CompareOutcome& with, const CompareOutcome& without) {
    const RunOutcome a = figures_of(with), b = figures_of(without);
    memory.add(a.measured_bytes, b.measured_bytes);
    host_memory.add(a.planned_host_bytes, b.planned_host_bytes);
    if (a.sent_is_counted == b.sent_is_counted) sent.add(a.bytes_sent_per_step, b.bytes_sent_per_step);
    collectives.add(a.collectives, b.collectives);
    pairs.push_back(with.speed.mean / without.speed.mean);
    for (const CompareOutcome* outcome : {&with, &without}) {
      if (disturbance.empty()) disturbance = outcome->disturbance;
      repeated = repeated && outcome->speed.known();
      simulated = simulated && outcome->prediction;
      const double half = std::log(outcome->speed.high / outcome->speed.mean);
      squares += half * half;
    }
  }

  /// Interval of the mean over the pairs, from the intervals of their rows.
  Interval speed() const {
    const double mean = interval_of(pairs).mean;
    if (!repeated) return {.mean = mean};
    const double half = std::sqrt(squares) / static_cast<double>(pairs.size());
    return {.mean = mean, .low = mean * std::exp(-half), .high = mean * std::exp(half), .count = 2};
  }
};

std::string line_of(const std::string& option, const std::string& value, const std::string& reference, const Effect& effect) {
  const Interval speed = effect.speed();
  std::string text = option + " " + value + " over " + reference + ": " + fixed_text(speed.mean, 2) + "x the speed";
  if (speed.known()) {
    text += " (" + fixed_text(speed.low, 2) + " to " + fixed_text(speed.high, 2) + ")";
  } else if (!effect.simulated) {
    text += " (measured once)";
  }
  text += effect.memory.text("memory") + effect.host_memory.text("memory on the host") + effect.sent.text("bytes sent") +
          effect.collectives.text("collectives");
  text += "; " + std::to_string(effect.pairs.size()) + (effect.pairs.size() == 1 ? " pair" : " pairs");
  if (effect.pairs.size() > 1) {
    const auto [least, most] = std::minmax_element(effect.pairs.begin(), effect.pairs.end());
    text += ", " + fixed_text(*least, 2) + "x to " + fixed_text(*most, 2) + "x";
  }
  if (!effect.disturbance.empty()) {
    text += "; the speed means nothing here: " + effect.disturbance;
  } else if (speed.known() && speed.low <= 1 && speed.high >= 1) {
    text += "; cannot be told from 1x here";
  }
  return text;
}

std::vector<std::string> values_of(const std::vector<CompareRow>& rows, std::size_t option) {
  std::vector<std::string> values;
  for (const CompareRow& row : rows) {
    const std::string& value = row.varied[option].second;
    if (value != no_such_option && std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

Effect effect_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, std::size_t option,
                 const std::string& value, const std::string& reference) {
  Effect effect;
  std::set<std::pair<std::size_t, std::size_t>> seen;  // rows that stand for several make one pair
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < rows.size(); ++j) {
      if (rows[i].varied[option].second != value || rows[j].varied[option].second != reference) continue;
      if (!outcomes[i].finished() || !outcomes[j].finished() || !differ_only_in(rows[i], rows[j], option)) continue;
      const std::size_t a = outcomes[i].same_program_as, b = outcomes[j].same_program_as;
      if (a != b && seen.insert({a, b}).second) effect.add(outcomes[i], outcomes[j]);
    }
  }
  return effect;
}

std::string fastest_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                         const std::string& model) {
  const Ranking ranking = rank_rows(rows, outcomes, model);
  if (ranking.rows.size() < 2) return {};
  const auto speed = [&](std::size_t i) { return outcomes[i].speed.mean; };
  if (ranking.leaders == 1) {
    double slowest = speed(ranking.rows.front());
    for (std::size_t i : ranking.rows) slowest = std::min(slowest, speed(i));
    return "Fastest of " + model + ": " + choices_of(rows[ranking.rows.front()]) + ", " +
           fixed_text(speed(ranking.rows.front()) / slowest, 2) + " times the slowest.\n";
  }
  std::string text = "Fastest of " + model + ": these cannot be told apart here (" + ranking.reason + "):\n";
  for (std::size_t i = 0; i < ranking.leaders; ++i) {
    text += "  " + choices_of(rows[ranking.rows[i]]) + ": " + si_text(speed(ranking.rows[i])) + " tokens/s\n";
  }
  return text;
}

std::string advice_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!outcomes[i].finished() || outcomes[i].same_program_as != i) continue;
    for (const std::string& advice : outcomes[i].runs.front().advice) text += "  " + rows[i].label + ": " + advice + "\n";
  }
  return text.empty() ? text : "What the runs say about their own choices:\n" + text;
}

}  // namespace

std::vector<ChoiceEffect> effects_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::vector<ChoiceEffect> effects;
  for (std::size_t option = 0; option < rows.front().varied.size(); ++option) {
    const std::string& name = rows.front().varied[option].first;
    const std::vector<std::string> values = values_of(rows, option);
    for (std::size_t v = 1; v < values.size() && name != "model"; ++v) {
      const Effect effect = effect_of(rows, outcomes, option, values[v], values[0]);
      if (effect.pairs.empty()) continue;
      effects.push_back({.option = name,
                         .value = values[v],
                         .reference = values[0],
                         .speed = effect.speed(),
                         .pairs = effect.pairs.size(),
                         .simulated = effect.simulated,
                         .disturbance = effect.disturbance,
                         .text = line_of(name, values[v], values[0], effect)});
    }
  }
  return effects;
}

std::string effects_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::string effects, fastest;
  bool simulated = false;
  for (const ChoiceEffect& effect : effects_of(rows, outcomes)) {
    effects += "  " + effect.text + "\n";
    simulated = simulated || effect.simulated;
  }
  for (std::size_t option = 0; option < rows.front().varied.size(); ++option) {
    if (rows.front().varied[option].first != "model") continue;
    for (const std::string& model : values_of(rows, option)) fastest += fastest_text(rows, outcomes, model);
  }
  if (!effects.empty()) {
    effects = std::string("What each choice is worth, by rows that differ in it alone (geometric means") +
              (simulated ? "" : ", with their 95% intervals") + "):\n" + effects;
  }
  return effects + fastest + advice_text(rows, outcomes);
}

}  // namespace consist::launch
