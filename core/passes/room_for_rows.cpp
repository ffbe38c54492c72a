#include "core/passes/room_for_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>

#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/op.h"

namespace consist {
namespace {

bool has_limit(const Instruction& i) {
  return i.op->dispatches_tokens() && i.attributes.has("axis");
}

/// The rows that an instruction has room for on this rank. How many had none is its last output.
std::int64_t room_of(const Program& program, const Instruction& i) {
  const Shape rows = program.local(i.outputs.front());
  return rows[rows.rank() - 2];
}

/// A rank's rows are a multiple of it: products like such sizes.
constexpr std::int64_t rows_unit = 16;

}  // namespace

bool may_overflow(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(), has_limit);
}

void grow_room(Program& forward, double factor) {
  const std::int64_t multiple = rows_unit * forward.mesh.ranks();
  for (Instruction& i : forward.instructions) {
    if (!has_limit(i)) continue;
    const auto wanted = static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(i.attributes.integer("rows"))));
    const std::int64_t rows = (wanted + multiple - 1) / multiple * multiple, most = i.attributes.integer_or("most_rows", rows);
    i.attributes.set("rows", std::min(rows, most));
  }
}

std::int64_t least_room(const Program& program) {
  std::int64_t least = 0;
  for (const Instruction& i : program.instructions) {
    if (!has_limit(i)) continue;
    const std::int64_t rows = room_of(program, i);
    least = least == 0 ? rows : std::min(least, rows);
  }
  return least;
}

void sum_overflow(Program& segment) {
  constexpr const char* name = "overflow";
  TensorId sum = no_tensor;
  Inserter inserter(segment);
  const std::size_t count = segment.instructions.size();
  for (std::size_t at = 0; at < count; ++at) {
    const Instruction& i = segment.instructions[at];
    if (!has_limit(i) || i.tag.phase != Phase::forward) continue;  // what is made again for backward counts once
    const TensorId here = i.outputs.back();
    if (sum == no_tensor) {
      sum = here;
      continue;
    }
    inserter.after(static_cast<InstructionId>(at), [&sum, here](Builder& builder) {
      builder.tag.inserted_by = "sum_overflow";
      sum = builder.emit_one("add", {sum, here}, {}, name);
    });
  }
  inserter.apply();
  if (sum == no_tensor && !segment.instructions.empty()) {  // another stage of a pipeline has experts
    Builder builder(segment);
    builder.tag = segment.instructions.front().tag;
    builder.tag.inserted_by = "sum_overflow";
    const TensorId zero = builder.constant("no_overflow", {}, [](std::span<float> out) { out[0] = 0; });
    sum = builder.emit_one("cast", {zero}, {{"dtype", std::string(name_of(DType::f32))}}, name);
  }
  segment.overflow = sum;
}

std::string overflow_text(const Program& program, double missing) {
  const std::int64_t room = least_room(program);
  char text[400];
  std::snprintf(
      text, sizeof text,
      "experts had no room for %.0f rows of tokens. Nothing was changed: weights and states are those before the step. A "
      "rank has room for %lld rows; with %.3g times as much (the capacity that was given to the strategy of the experts, times "
      "that) all would have found a place",
      missing, static_cast<long long>(room),
      std::ceil(100 * (1 + missing / static_cast<double>(std::max<std::int64_t>(room, 1)))) / 100);
  return text;
}

}  // namespace consist
