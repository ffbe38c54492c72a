#include <cmath>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/search/reproduce/reproduction.h"

namespace consist::launch {
namespace {

std::string rate_text(double rate) {
  return fixed_text(rate, 0) + " tokens/s per GPU";
}

/// "12.0% faster", of a published speed beside a predicted one.
std::string gap_text(double gap) {
  return percent_text(std::abs(gap), 1) + (gap >= 0 ? " faster" : " slower");
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string published_text(const Reproduction& r) {
  std::string text = "published  " + rate_text(r.rate) + ", MFU " + percent_text(r.published_mfu(), 1);
  if (r.published.unit != Published::Unit::flops) return text + "\n";
  text += ", which " + si_text(r.published.value) + "FLOP/s per GPU are by the counting '" + r.countings[r.counting].name + "'\n";
  for (const Counting& counting : r.countings)
    text += "  " + padded(counting.name, 13) + rate_text(r.published.value / counting.flops) + ": " + counting.words + "\n";
  return text;
}

std::string predicted_text(const Reproduction& r, const Plan& plan) {
  std::string text = "predicted  " + rate_text(r.predicted);
  if (r.error) text += " (" + fixed_text(r.low(), 0) + " to " + fixed_text(r.high(), 0) + ")";
  text += ", MFU " + percent_text(r.prediction.model_flops_utilization, 1) + ", a step of " +
          milliseconds_text(r.prediction.time.seconds) + ", " + bytes_text(r.prediction.most_bytes()) + ", for " +
          plan.target().machine->name + "\n";
  if (!r.error_is_whole)
    text += "           " + why_unknown(r.prediction.time.error) +
            (r.error ? "; the interval is of the kinds that were, and the whole one is wider\n" : "; there is no interval\n");
  return text;
}

std::string outcome_text(const Reproduction& r) {
  const std::string difference = "the published number is " + gap_text(r.gap()) + " than predicted";
  if (!r.prediction.fits()) return "NOT EXPLAINED: the plan does not fit the machine's memory; " + difference + "\n";
  switch (r.outcome()) {
    case Outcome::explained:
      return "explained: " + difference + ", within the interval\n";
    case Outcome::not_explained:
      return "NOT EXPLAINED: " + difference + ", outside the interval\n";
    case Outcome::unclear:
      break;
  }
  return "cannot be told: " + difference + ", and no such step was measured\n";
}

/// "reaches it" or how far it comes.
std::string reach_text(const Reproduction& r, double rate) {
  if (rate >= r.rate) return "reaches it";
  return percent_text((rate / r.predicted - 1) / r.gap(), 0) + " of what is missing";
}

std::string products_text(const Reproduction& r) {
  if (r.peak <= 0 || r.products_share <= 0) return "";
  std::string text = "  products    " + percent_text(r.products_share, 0) + " of the peak are predicted; ";
  text += r.needed_share ? percent_text(*r.needed_share, 0) + " would give the number, all else as it is"
                         : "no speed of products gives the number, all else as it is";
  if (r.best_share > 0) {
    text += "; the machine's file has " + percent_text(r.best_share, 0) + " at best";
    if (!r.needed_share || *r.needed_share > r.best_share) text += ": it thinks that impossible";
  }
  return text + "\n";
}

/// The ways in which a published speed that is higher could be reached.
std::string faster_text(const Reproduction& r) {
  std::string text = "What is missing to it:\n";
  for (const MissingPart& part : r.parts)
    text += "  without " + part.name + ", " + milliseconds_text(part.seconds) + ": " + rate_text(part.rate) + ", " +
            reach_text(r, part.rate) + "\n";
  if (r.parts.size() > 1)
    text += "  without any waiting: " + rate_text(r.without_waiting) + ", " + reach_text(r, r.without_waiting) + "\n";
  text += products_text(r);
  for (const Advice& advice : r.advice) text += "  " + text_of(advice) + "; " + reach_text(r, r.predicted * advice.speed) + "\n";
  if (r.advice.empty()) text += "  no change that was tried fits and is 2% faster\n";
  for (const Advice& advice : r.together)
    text += "  together: " + text_of(advice) + "; " + reach_text(r, r.predicted * advice.speed) + "\n";
  return text;
}

std::string slower_text(const Reproduction& r) {
  return "What the published run has less of: it takes " +
         milliseconds_text(r.prediction.time.seconds * (r.predicted / r.rate - 1)) + " more a step than these programs need\n" +
         products_text(r);
}

}  // namespace

std::string text_of(const Reproduction& r, const Plan& plan) {
  std::string text =
      published_text(r) + predicted_text(r, plan) + outcome_text(r) + "\nThe measurement that the prediction is of:\n";
  for (const Term& term : r.contract) text += "  " + padded(term.what, 17) + term.words + " (" + term.source + ")\n";
  if (r.outcome() == Outcome::explained) return text;
  text += "\n" + (r.gap() > 0 ? faster_text(r) : slower_text(r));
  return text;
}

}  // namespace consist::launch
