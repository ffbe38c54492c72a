#include "core/experts/room_for_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "consist/room.h"

namespace consist {
namespace {

bool has_limit(const Instruction& i) {
  return i.op->dispatches_tokens() && i.attributes.has("axis");
}

/// True if an instruction with a limit sends tokens to ranks, and does not make rows of them for the rank's own experts.
bool sends(const Instruction& i) {
  return i.attributes.has("ranks");
}

/// The capacity of an instruction on this rank, in rows or tokens. Its last output is the number of those beyond it.
std::int64_t room_of(const Program& program, const Instruction& i) {
  const Shape rows = program.local(i.outputs.front());
  return rows[rows.rank() - 2];
}

}  // namespace

bool may_overflow(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(), has_limit);
}

void grow_room(Program& forward, double factor) {
  for (Instruction& i : forward.instructions) {
    if (!has_limit(i)) continue;
    const auto wanted = static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(i.attributes.integer("rows"))));
    const std::int64_t rows = rounded_room(wanted, forward.mesh.ranks() / i.attributes.integer_or("ranks", 1)),
                       most = i.attributes.integer_or("most_rows", rows);
    i.attributes.set("rows", std::min(rows, most));
  }
}

Room least_room(const Program& program) {
  Room least;
  for (const Instruction& i : program.instructions) {
    if (!has_limit(i)) continue;
    std::int64_t& of_kind = sends(i) ? least.tokens : least.rows;
    of_kind = of_kind == 0 ? room_of(program, i) : std::min(of_kind, room_of(program, i));
  }
  return least;
}

void sum_overflow(Program& segment) {
  constexpr const char* name = "overflow";
  // Tokens that are sent along one axis and gathered along another are each rank's own along the first alone, rows along both:
  // sums of different placements meet once, at the end.
  std::vector<std::pair<Placements, TensorId>> sums;
  Inserter inserter(segment);
  InstructionId last = -1;
  const std::size_t count = segment.instructions.size();
  for (std::size_t at = 0; at < count; ++at) {
    const Instruction& i = segment.instructions[at];
    if (!has_limit(i) || i.tag.phase != Phase::forward) continue;  // recomputed instructions count once
    const TensorId here = i.outputs.back();
    last = static_cast<InstructionId>(at);
    const auto known = std::ranges::find(sums, segment[here].placements, &std::pair<Placements, TensorId>::first);
    if (known == sums.end()) {
      sums.emplace_back(segment[here].placements, here);
      continue;
    }
    inserter.after(last, [&sum = known->second, here](Builder& builder) {
      builder.tag.inserted_by = "sum_overflow";
      sum = builder.emit_one("add", {sum, here}, {}, name);
    });
  }
  for (std::size_t group = 1; group < sums.size(); ++group) {
    inserter.after(last, [&sums, group](Builder& builder) {
      builder.tag.inserted_by = "sum_overflow";
      sums[0].second = builder.emit_one("add", {sums[0].second, sums[group].second}, {}, name);
    });
  }
  inserter.apply();
  TensorId sum = sums.empty() ? no_tensor : sums[0].second;
  if (sum == no_tensor && !segment.instructions.empty()) {  // another stage of a pipeline has experts
    Builder builder(segment);
    builder.tag = segment.instructions.front().tag;
    builder.tag.inserted_by = "sum_overflow";
    const TensorId zero = builder.constant("no_overflow", {}, [](std::span<float> out) { out[0] = 0; });
    sum = builder.emit_one("cast", {zero}, {{"dtype", std::string(name_of(DType::f32))}}, name);
  }
  segment.add_output(StepOutput::Kind::overflow, sum);
}

std::string without_room_text(const Program& program, double missing) {
  const std::string count = std::to_string(static_cast<long long>(missing));
  if (least_room(program).tokens == 0) return "experts had no room for " + count + " rows of tokens";
  return "there was no room for " + count + " tokens, on their way to the ranks of their experts or as rows there";
}

std::string overflow_text(const Program& program, double missing) {
  const Room room = least_room(program);
  const std::string text =
      without_room_text(program, missing) + ". Nothing was changed: weights and states are those before the step. ";
  // Another stage of a pipeline has experts.
  if (room.rows == 0) return text + "Begin with more room: the capacity that is given to the strategy of the experts";
  const std::int64_t least = room.tokens == 0 ? room.rows : std::min(room.rows, room.tokens);
  char factor[40];
  std::snprintf(factor, sizeof factor, "%.3g", std::ceil(100 * (1 + missing / static_cast<double>(least))) / 100);
  return text + "A rank has room for " + std::to_string(room.rows) + " rows" +
         (room.tokens == 0 ? "" : " and for " + std::to_string(room.tokens) + " tokens from each rank") + "; with " + factor +
         " times as much (the capacity that was given to the strategy of the experts, times that) all would have found a place";
}

}  // namespace consist
