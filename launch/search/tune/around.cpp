#include "launch/search/tune/around.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "core/base/quantity_text.h"

namespace consist::launch {
namespace {

constexpr std::size_t layouts_shown = 3;
/// Values of an option in its line for people.
constexpr std::size_t values_shown = 3;

const char* shown(const std::string& value) {
  return value.empty() ? "all" : value.c_str();  // of recompute-layers
}

/// The option that was changed: others that differ, too, have an effect beside one of its values alone.
std::size_t changed_dimension(const std::vector<Dimension>& dimensions, const Point& from, const Point& to) {
  std::size_t changed = dimensions.size();
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (from.values[d] == to.values[d]) continue;
    const auto decides = [&](std::size_t other) {
      return from.values[other] != to.values[other] && dimensions[other].option == dimensions[d].needs_option;
    };
    bool follows = false;
    for (std::size_t other = 0; other < dimensions.size(); ++other) follows = follows || decides(other);
    if (!follows) changed = d;
  }
  return changed;
}

bool is_one_step(const Dimension& dimension, std::uint8_t from, std::uint8_t to) {
  return dimension.option != "batch" || to + 1 == from || from + 1 == to;
}

/// The loss of a point that is known and fits.
OptionStep step_to(const Findings& found, const Corrections& corrections, const Point& best, const Point& point) {
  const Known &here = *found.find(best), &there = *found.find(point);
  const auto score = [&](const Estimate& estimate) { return found.score(estimate).first; };
  if (there.is_simulated()) {
    const bool alike = here.simulated && there.simulated;  // both with few micro-batches
    const double of_best = score(alike ? *here.simulated : here.surest());
    return {.loss = score(alike ? *there.simulated : there.surest()) / of_best - 1};
  }
  // Estimates of one layout are off alike.
  const double loss = point.layout == best.layout && here.quick
                          ? score(*there.quick) / score(*here.quick) - 1
                          : score(*there.quick) * corrections.ratio(point) / score(here.surest()) - 1;
  return {.loss = loss, .is_simulated = false};
}

void sort_steps(std::vector<OptionStep>& steps) {
  std::stable_sort(steps.begin(), steps.end(),
                   [](const OptionStep& a, const OptionStep& b) { return a.fits != b.fits ? a.fits : a.loss < b.loss; });
}

/// The best of the other layouts.
OptionSteps layout_steps(const Space& space, const Findings& found, const Corrections& corrections, const Point& best) {
  const auto name_of_layout = [&](const LayoutChoice& layout) {
    return layout.strategy + (layout.transport.empty() ? "" : " over " + layout.transport);
  };
  OptionSteps all{.option = "strategy", .value = name_of_layout(space.layouts()[best.layout])};
  std::map<std::size_t, OptionStep> by_layout;
  found.each([&](const Point& point, const Known& known) {
    if (point.layout == best.layout || !known.fits() || space.changes_numerics(point) != space.changes_numerics(best)) return;
    OptionStep step = step_to(found, corrections, best, point);
    step.value = name_of_layout(space.layouts()[point.layout]);
    const auto [of_layout, is_first] = by_layout.try_emplace(point.layout, step);
    // What was simulated counts before what was estimated.
    OptionStep& best_there = of_layout->second;
    if (!is_first && std::pair(!step.is_simulated, step.loss) < std::pair(!best_there.is_simulated, best_there.loss))
      best_there = step;
  });
  for (auto& [layout, step] : by_layout) all.steps.push_back(std::move(step));
  sort_steps(all.steps);
  if (all.steps.size() > layouts_shown) all.steps.resize(layouts_shown);
  return all;
}

std::string text_of(const OptionStep& step) {
  if (!step.fits) return std::string(shown(step.value)) + " too large";
  char loss[32];
  std::snprintf(loss, sizeof loss, " %s%+.1f%%", step.is_simulated ? "" : "~", 100 * step.loss);
  return shown(step.value) + std::string(loss);
}

}  // namespace

OptionSteps::Shape OptionSteps::shape() const {
  const auto is_cheap = [](const OptionStep& step) { return step.fits && step.loss <= margin_of_ties; };
  const auto cheap = std::ranges::count_if(steps, is_cheap);
  if (cheap == 0) return Shape::peak;
  return cheap == std::ranges::count_if(steps, &OptionStep::fits) ? Shape::basin : Shape::slope;
}

const char* name_of(OptionSteps::Shape shape) {
  switch (shape) {
    case OptionSteps::Shape::basin:
      return "basin";
    case OptionSteps::Shape::slope:
      return "slope";
    case OptionSteps::Shape::peak:
      break;
  }
  return "peak";
}

std::vector<StepPoints> steps_from(const Space& space, const Point& best, Numerics numerics) {
  const std::vector<Dimension>& dimensions = space.layouts()[best.layout].dimensions;
  std::map<std::pair<std::size_t, std::uint8_t>, Points> by_value;
  for (Point& point : space.around(best, 1, numerics)) {
    const std::size_t d = changed_dimension(dimensions, best, point);
    if (d < dimensions.size() && is_one_step(dimensions[d], best.values[d], point.values[d]))
      by_value[{d, point.values[d]}].push_back(std::move(point));
  }
  std::vector<StepPoints> steps;
  for (auto& [change, points] : by_value) {
    const Dimension& dimension = dimensions[change.first];
    steps.push_back({dimension.option, dimension.values[change.second], std::move(points)});
  }
  return steps;
}

std::vector<OptionSteps> options_around(const Space& space, const Findings& found, const Corrections& corrections,
                                        const Point& best, Numerics numerics) {
  std::vector<OptionSteps> around;
  if (OptionSteps layouts = layout_steps(space, found, corrections, best); !layouts.steps.empty())
    around.push_back(std::move(layouts));
  for (const StepPoints& to : steps_from(space, best, numerics)) {
    std::optional<OptionStep> step;
    for (const Point& point : to.points) {
      const Known* known = found.find(point);
      if (known == nullptr || known->refused || !known->is_known()) continue;
      const OptionStep here = known->fits() ? step_to(found, corrections, best, point) : OptionStep{.fits = false};
      if (!step || !step->fits || (here.fits && here.loss < step->loss)) step = here;
    }
    if (!step) continue;
    step->value = to.value;
    if (around.empty() || around.back().option != to.option) around.push_back({to.option, space.value_of(best, to.option), {}});
    around.back().steps.push_back(*step);
  }
  for (OptionSteps& option : around) sort_steps(option.steps);
  std::stable_sort(around.begin(), around.end(), [](const OptionSteps& a, const OptionSteps& b) {
    return a.shape() != b.shape() ? a.shape() > b.shape() : a.steps.front().loss > b.steps.front().loss;
  });
  return around;
}

std::string text_of(const std::vector<OptionSteps>& around) {
  if (around.empty()) return {};
  std::string text = "One step from the first row (peak: every one costs more than " + percent_text(margin_of_ties) +
                     ", slope: some do, basin: none; ~: estimated):\n";
  std::string basins;
  double most = 0;
  for (const OptionSteps& option : around) {
    if (option.shape() == OptionSteps::Shape::basin) {
      basins += (basins.empty() ? "" : ", ") + option.option;
      for (const OptionStep& step : option.steps) most = std::max(most, step.fits ? step.loss : 0);
      continue;
    }
    text += std::string(option.shape() == OptionSteps::Shape::peak ? "  peak  " : "  slope ") + option.option + " " +
            shown(option.value) + ": ";
    for (std::size_t n = 0; n < std::min(values_shown, option.steps.size()); ++n)
      text += (n > 0 ? ", " : "") + text_of(option.steps[n]);
    if (option.steps.size() > values_shown) text += ", " + std::to_string(option.steps.size() - values_shown) + " more";
    text += "\n";
  }
  if (!basins.empty()) text += "  basin " + basins + ": " + percent_text(most, 1) + " at most\n";
  return text;
}

}  // namespace consist::launch
