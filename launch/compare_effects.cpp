#include "launch/compare_effects.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/runtime/text.h"

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
    if (one_is_zero_ || count_ == 0 || std::abs(mean() - 1) < 0.005) return "";
    return std::string(", ") + what + " " + fixed_text(mean(), 2) + "x";
  }
  double mean() const { return std::exp(logarithms_ / std::max(count_, 1)); }

 private:
  double logarithms_ = 0;
  int count_ = 0;
  bool one_is_zero_ = false;
};

bool can_be_told_apart(const CompareOutcome& a, const CompareOutcome& b) {
  return a.low > b.high || b.low > a.high;
}

/// Whether the rows have the same values but for option `option`.
bool differ_only_in(const CompareRow& a, const CompareRow& b, std::size_t option) {
  for (std::size_t i = 0; i < a.varied.size(); ++i) {
    if ((a.varied[i].second == b.varied[i].second) == (i == option)) return false;
  }
  return true;
}

struct Effect {
  Ratio speed, memory, host_memory, sent, collectives;
  int pairs = 0, told_apart = 0;
};

std::string line_of(const std::string& option, const std::string& value, const std::string& reference, const Effect& effect) {
  std::string text =
      "  " + option + " " + value + " over " + reference + ": " + fixed_text(effect.speed.mean(), 2) + "x the speed";
  if (effect.told_apart == 0) text += " (within the spread)";
  text += effect.memory.text("memory") + effect.host_memory.text("memory on the host") + effect.sent.text("bytes sent") +
          effect.collectives.text("collectives");
  return text + "; " + std::to_string(effect.pairs) + (effect.pairs == 1 ? " pair\n" : " pairs\n");
}

std::vector<std::string> values_of(const std::vector<CompareRow>& rows, std::size_t option) {
  std::vector<std::string> values;
  for (const CompareRow& row : rows) {
    const std::string& value = row.varied[option].second;
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

Effect effect_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, std::size_t option,
                 const std::string& value, const std::string& reference) {
  Effect effect;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < rows.size(); ++j) {
      const CompareOutcome &with = outcomes[i], &without = outcomes[j];
      if (rows[i].varied[option].second != value || rows[j].varied[option].second != reference) continue;
      if (with.status != "finished" || without.status != "finished" || !differ_only_in(rows[i], rows[j], option)) continue;
      ++effect.pairs;
      effect.told_apart += can_be_told_apart(with, without) ? 1 : 0;
      effect.speed.add(with.tokens_per_second, without.tokens_per_second);
      effect.memory.add(with.measured_bytes, without.measured_bytes);
      effect.host_memory.add(with.planned_host_bytes, without.planned_host_bytes);
      if (with.sent_is_counted == without.sent_is_counted) effect.sent.add(with.bytes_sent_per_step, without.bytes_sent_per_step);
      effect.collectives.add(with.collectives, without.collectives);
    }
  }
  return effect;
}

/// "ranks 2, precision bf16"; without the model.
std::string choices_of(const CompareRow& row) {
  std::string text;
  for (const auto& [option, value] : row.varied) {
    if (option != "model") text += (text.empty() ? "" : ", ") + option + " " + value;
  }
  return text;
}

/// The fastest row of rows[first...], all of one model, and its equals.
std::string fastest_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                         const std::string& model) {
  std::vector<std::size_t> finished;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool of_model = std::any_of(rows[i].varied.begin(), rows[i].varied.end(),
                                      [&](const auto& choice) { return choice.first == "model" && choice.second == model; });
    if (of_model && outcomes[i].status == "finished") finished.push_back(i);
  }
  if (finished.size() < 2 || choices_of(rows[finished[0]]).empty()) return {};
  const auto speed = [&](std::size_t i) { return outcomes[i].tokens_per_second; };
  std::stable_sort(finished.begin(), finished.end(), [&](std::size_t a, std::size_t b) { return speed(a) > speed(b); });
  const std::size_t best = finished.front();
  std::string text = "Fastest of " + model + ": " + choices_of(rows[best]) + ", " +
                     fixed_text(speed(best) / speed(finished.back()), 2) + " times the slowest.";
  std::string equals;
  for (std::size_t i : finished) {
    if (i != best && !can_be_told_apart(outcomes[i], outcomes[best])) equals += "\n  " + choices_of(rows[i]);
  }
  return text + (equals.empty() ? "\n" : " Its spread reaches these, too:" + equals + "\n");
}

std::string advice_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& advice : outcomes[i].advice) text += "  " + rows[i].label + ": " + advice + "\n";
  }
  return text.empty() ? text : "What the runs say about their own choices:\n" + text;
}

}  // namespace

std::string effects_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::string effects, fastest;
  for (std::size_t option = 0; option < rows.front().varied.size(); ++option) {
    const std::string& name = rows.front().varied[option].first;
    const std::vector<std::string> values = values_of(rows, option);
    for (std::size_t v = 0; v < values.size(); ++v) {
      if (name == "model") {
        fastest += fastest_text(rows, outcomes, values[v]);
      } else if (v > 0) {
        const Effect effect = effect_of(rows, outcomes, option, values[v], values[0]);
        if (effect.pairs > 0) effects += line_of(name, values[v], values[0], effect);
      }
    }
  }
  if (!effects.empty()) effects = "What each choice is worth, by rows that differ in it alone (geometric means):\n" + effects;
  return effects + fastest + advice_text(rows, outcomes);
}

}  // namespace consist::launch
