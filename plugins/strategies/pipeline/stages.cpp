#include "plugins/strategies/pipeline/stages.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"
#include "plugins/strategies/pipeline/stream.h"

namespace consist::pipeline {
namespace {

/// Share of the longest stage's time that stages begun within a block must save to be worth messages of several times the stream.
constexpr double least_gain = 0.01;

/// Numbers pieces in Tag::stage and returns how many there are. A new piece begins where the model may be cut, which leaves each
/// piece a parameter to train and the first and last one a part of a layer.
std::size_t number_pieces(Program& forward, Cut cut) {
  std::vector<bool> is_parameter(forward.tensors.size(), false);
  for (const Parameter& p : forward.parameters) is_parameter[static_cast<std::size_t>(p.tensor)] = true;
  std::size_t rest = 0;  // instructions up to the last one of a layer
  for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
    if (forward.instructions[i].tag.layer >= 0) rest = i + 1;
  }
  std::int16_t newest = 0;
  bool trains = false;
  std::int16_t layer = -1;
  Crossing crossing(forward);
  for (std::size_t i = 0; i < forward.instructions.size(); ++i, crossing.advance()) {
    Instruction& instruction = forward.instructions[i];
    const bool new_layer = instruction.tag.layer != layer;
    const bool trains_here = std::any_of(instruction.inputs.begin(), instruction.inputs.end(), [&](TensorId input) {
      return input != no_tensor && is_parameter[static_cast<std::size_t>(input)];
    });
    // Within a layer an instruction begins a piece only if it trains something itself, so that no piece is without.
    const bool allowed =
        cut == Cut::operators ? trains_here : new_layer || (cut == Cut::blocks && trains_here && crossing.sent().size() == 1);
    if (i < rest && layer >= 0 && allowed && trains) {
      ++newest;
      trains = false;
    }
    trains = trains || trains_here;
    if (instruction.tag.layer >= 0) layer = instruction.tag.layer;
    instruction.tag.stage = newest;
  }
  return static_cast<std::size_t>(newest) + 1;
}

/// Seconds of the longest group, as balanced() counts them.
double longest(const std::vector<Piece>& pieces, const std::vector<int>& group, const std::vector<double>& speeds) {
  double most = 0, cost = 0, lead = 0, leads = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool begins = i == 0 || group[i] != group[i - 1], ends = i + 1 == pieces.size() || group[i + 1] != group[i];
    if (begins) {
      cost = i > 0 ? pieces[i - 1].cut : 0;
      lead = leads;
    }
    cost += pieces[i].cost + (ends && i + 1 < pieces.size() ? pieces[i].cut : 0);
    leads += pieces[i].lead;
    const double speed = speeds.empty() ? 1 : speeds[static_cast<std::size_t>(group[i]) % speeds.size()];
    if (ends) most = std::max(most, lead + cost / speed);
  }
  return most;
}

/// Sets the stages of `forward` and returns the seconds of the longest.
double assign(Program& forward, int axis, int stages, Cut cut, bool leads, const std::vector<double>& speeds) {
  const std::vector<Piece> pieces = pieces_of(forward, axis, cut, leads);
  const std::vector<int> stage_of = balanced(pieces, stages, speeds);
  for (Instruction& i : forward.instructions)
    i.tag.stage = static_cast<std::int16_t>(stage_of[static_cast<std::size_t>(i.tag.stage)]);
  return longest(pieces, stage_of, speeds);
}

}  // namespace

std::vector<Piece> pieces_of(Program& forward, int axis, Cut cut, bool leads) {
  const CostModel& costs = costs_of(forward);
  const std::size_t count = number_pieces(forward, cut);
  Program program = propagate_shardings(forward);  // with the dtypes that it is to have
  std::vector<Piece> pieces(count);
  const auto at = [](std::int16_t stage) { return static_cast<std::size_t>(stage); };
  Crossing crossing(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i, crossing.advance()) {
    const std::size_t piece = at(program.instructions[i].tag.stage);
    if (i == 0 || piece == at(program.instructions[i - 1].tag.stage)) continue;
    for (TensorId sent : crossing.sent())  // and its gradient back
      pieces[piece - 1].cut += 2 * crossing_share * costs.message_seconds(static_cast<double>(program.bytes(sent)), axis);
  }
  for (const Instruction& i : program.instructions)
    pieces[at(i.tag.stage)].lead += leads ? costs.seconds(program, i) / forward.micro_batches : 0;
  differentiate(program, program[program.parameters.front().tensor].dtype);
  for (const Instruction& i : program.instructions) pieces[at(i.tag.stage)].cost += costs.seconds(program, i);
  return pieces;
}

std::vector<int> balanced(const std::vector<Piece>& pieces, int parts, const std::vector<double>& speeds) {
  struct Best {
    double largest = std::numeric_limits<double>::infinity(), squares = 0;
    std::size_t cut = 0;  // where the last group begins
    bool operator<(const Best& other) const {
      return largest != other.largest ? largest < other.largest : squares < other.squares;
    }
  };
  const std::size_t n = pieces.size();
  std::vector<double> before(n + 1, 0), lead(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    before[i + 1] = before[i] + pieces[i].cost;
    lead[i + 1] = lead[i] + pieces[i].lead;
  }
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(parts) + 1, std::vector<Best>(n + 1));
  best[0][0].largest = 0;
  for (std::size_t p = 1; p < best.size(); ++p) {
    const double speed = speeds.empty() ? 1 : speeds[(p - 1) % speeds.size()];
    for (std::size_t end = p; end <= n; ++end) {
      Best& found = best[p][end];
      for (std::size_t cut = end; cut-- > p - 1;) {
        const double without_cuts = (before[end] - before[cut]) / speed;
        if (without_cuts > found.largest) break;  // and it grows with each piece more
        const Best& rest = best[p - 1][cut];
        const double cuts = (cut > 0 ? pieces[cut - 1].cut : 0) + (end < n ? pieces[end - 1].cut : 0);
        const double cost = lead[cut] + (before[end] - before[cut] + cuts) / speed;
        const Best with{std::max(rest.largest, cost), rest.squares + cost * cost, cut};
        if (!(found < with)) found = with;  // of equal ones the first cut
      }
    }
  }
  std::vector<int> group(n, 0);
  for (std::size_t p = best.size() - 1, end = n; p > 0; --p) {
    const std::size_t cut = best[p][end].cut;
    std::fill(group.begin() + static_cast<std::ptrdiff_t>(cut), group.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<int>(p) - 1);
    end = cut;
  }
  return group;
}

void assign_stages(Program& forward, int axis, int stages, Cut cut, bool leads, const std::vector<double>& speeds) {
  int layers = 0;
  for (const Instruction& i : forward.instructions) layers = std::max(layers, i.tag.layer + 1);
  check_stages(layers, stages);
  if (cut != Cut::automatic) {
    assign(forward, axis, stages, cut, leads, speeds);
    return;
  }
  Program within_layers = forward;
  const double of_blocks = assign(forward, axis, stages, Cut::blocks, leads, speeds);
  const double of_operators = assign(within_layers, axis, stages, Cut::operators, leads, speeds);
  if (of_operators < of_blocks * (1 - least_gain)) forward = std::move(within_layers);
}

void check_stages(int layers, int stages) {
  if (layers >= stages) return;
  throw UsageError("strategy 'pipeline' would cut the model into " + std::to_string(stages) + " stages, but it has " +
                   std::to_string(layers) + " layers, and every stage needs one; choose fewer ranks or chunks");
}

void check_speeds(const std::vector<double>& speeds, int ranks) {
  if (speeds.empty() || speeds.size() == static_cast<std::size_t>(ranks)) return;
  throw UsageError("--pipeline.rank-speeds names " + std::to_string(speeds.size()) + " speeds, but the pipeline has " +
                   std::to_string(ranks) + " ranks; name one for each, the first stage's first");
}

std::vector<double> speeds_of(const std::string& text) {
  std::vector<double> speeds;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ':');) {
    double speed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), speed);
    if (error != std::errc() || end != word.data() + word.size() || !(speed > 0) || !std::isfinite(speed)) {
      throw UsageError("--pipeline.rank-speeds is '" + text + "', and '" + word +
                       "' is no number above 0; name one for each rank of the pipeline, as in 0.97:1:1:1.02");
    }
    speeds.push_back(speed);
  }
  return speeds;
}

}  // namespace consist::pipeline
