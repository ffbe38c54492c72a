#include "core/interpreter/step_inputs.h"

#include <random>

#include "consist/token_order.h"
#include "core/interpreter/logical_values.h"
#include "core/state/initial_values.h"

namespace consist::interpreter {
namespace {

/// Elements of a parameter or one of its states: fixed by name and element, none of them the same for a whole tensor.
std::vector<float> initial(const std::string& name, std::int64_t elements, float mean, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  initial_values(values, 1, name, 0, mean, deviation);
  return values;
}

std::vector<float> initial_parameter(const Parameter& p, std::int64_t elements) {
  return initial(p.name, elements, p.init_mean, 0.25F);
}
/// Second moments are positive, and whatever else an optimizer may divide by or take the root of.
std::vector<float> initial_state(const Parameter& p, const std::string& state, std::int64_t elements) {
  if (state == "moment1" || state == "momentum") return initial(p.name + "." + state, elements, 0, 0.01F);
  std::vector<float> values = initial(p.name + "." + state, elements, 0, 1);
  for (float& v : values) v = 1e-3F * (1 + v * v);
  return values;
}

/// The bytes of weights in blocks, as numbers.
std::vector<float> encoded(const WeightBlocks& blocks, const std::vector<float>& weights) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(std::ssize(weights) / blocks.length * blocks.bytes()));
  encode(blocks, weights, bytes);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void write_initial_states(Arena& arena) {
  const Program& program = arena.planned().program;
  write_zero_states(arena);  // those of no parameter start from them
  for (const Parameter& p : program.parameters) {
    const std::int64_t elements = program.shape_of(p).elements();
    const std::vector<float> weights = initial_parameter(p, elements);
    write_logical(arena, p.tensor, p.blocks.any() ? encoded(p.blocks, weights) : weights);
    if (p.master != no_tensor) write_logical(arena, p.master, weights);
    for (const ParameterState& state : p.states)
      write_logical(arena, state.tensor, initial_state(p, state.name, program[state.tensor].shape.elements()));
  }
}

namespace {

/// Token `position` of sequence `sequence`.
std::int64_t token(std::int64_t sequence, std::int64_t position, std::int64_t vocabulary) {
  std::seed_seq words{sequence, position};
  std::uint32_t drawn[1];
  words.generate(drawn, drawn + 1);
  return drawn[0] % static_cast<std::uint32_t>(vocabulary);
}

}  // namespace

void write_input(Arena& arena, const std::string& name, const std::vector<double>& values) {
  const TensorId id = find(arena.planned().program, name, Role::input);
  if (id != no_tensor) arena.write(id, {DType::f32, {}, values});
}

namespace {

/// The same of what the rank holds of an input [sequences, length]; `rows` are its sequences, whole and in order of position.
void write_tokens_of(Arena& arena, const std::string& name, const std::vector<double>& rows, std::int64_t length) {
  const Program& program = arena.planned().program;
  const TensorId id = find(program, name, Role::input);
  if (id == no_tensor) return;
  const LocalPart part = program.part(id);
  std::vector<double> values;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(rows.size()) / length; ++row) {
    for (std::int64_t at = 0; at < part.shape[1]; ++at)
      values.push_back(rows[static_cast<std::size_t>(row * length + position_of(part.origin[1] + at, length, program.zigzag))]);
  }
  write_input(arena, name, values);
}

}  // namespace

void write_tokens(Arena& arena, const std::string& suffix, std::int64_t first, std::int64_t rows, std::int64_t length,
                  std::int64_t vocabulary) {
  std::vector<double> ids, targets, mask, starts;
  for (std::int64_t sequence = first; sequence < first + rows; ++sequence) {
    for (std::int64_t at = 0; at < length; ++at) {
      ids.push_back(static_cast<double>(token(sequence, at, vocabulary)));
      const bool counts = (sequence * length + at) % 11 != 5;
      targets.push_back(counts ? static_cast<double>(token(sequence, at + 1, vocabulary)) : -1);
      mask.push_back((sequence * length + at) % 3 != 1 ? 1 : 0);
      starts.push_back(static_cast<double>(at - at % (2 + sequence % 3)));  // documents of 2, 3 or 4 tokens
    }
  }
  write_tokens_of(arena, "ids" + suffix, ids, length);
  write_tokens_of(arena, "targets" + suffix, targets, length);
  write_tokens_of(arena, "loss_mask" + suffix, mask, length);
  write_tokens_of(arena, "document_start" + suffix, starts, length);
  for (const Field& field : arena.planned().program.fields) {
    if (field.name == "loss_mask" || field.name == "document_start") continue;
    std::vector<double> values;
    for (std::int64_t sequence = first; sequence < first + rows; ++sequence) {
      for (std::int64_t at = 0; at < length; ++at) values.push_back(static_cast<double>(token(sequence + 7, at, 3)) - 1);
    }
    write_tokens_of(arena, field.name + suffix, values, length);
  }
}

}  // namespace consist::interpreter
