#include "core/training/generator.h"

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "core/compile/with_cache.h"

namespace consist {
namespace {

/// The room for keys of the first cache: that of all.
std::int64_t room_of(const Program& program) {
  for (const Tensor& tensor : program.tensors) {
    if (tensor.state && tensor.role == Role::activation && tensor.shape.rank() == 3) return tensor.shape[1];
  }
  throw UsageError("the model has no attention, of whose keys and values a cache could be made");
}

}  // namespace

NamedPrograms text_programs(const Plan& plan, std::int64_t longest, int rank) {
  NamedPrograms programs;
  programs.push_back({decode_program, plan.stretch(longest, 1, true, rank)});
  programs.push_back({prefill_program, plan.stretch(longest, std::min(prompt_stretch, longest), false, rank)});
  return programs;
}

std::int64_t room_for(std::int64_t tokens, std::int64_t positions) {
  const std::int64_t whole = (tokens + prompt_stretch - 1) / prompt_stretch * prompt_stretch;
  return positions > 0 ? std::min(whole, positions) : whole;
}

Generator::Generator(TrainingState& state)
    : state_(state),
      prompt_(*state.find(prefill_program)),
      next_(*state.find(decode_program)),
      stretch_(state.input_part(prompt_, "ids").shape[1]),
      longest_(room_of(next_.program())),
      rows_(state.input_part(next_, "ids").shape[0]) {
  for (const char* name : {prefill_program, decode_program}) state.restore_constants(name);
  const Shape logits = state.input_part(next_, logits_name).shape;
  vocabulary_ = logits.last();
  logits_.resize(static_cast<std::size_t>(logits.elements()));
}

void Generator::run(PreparedProgram& program, std::span<const std::int32_t> tokens, std::int64_t width) {
  ids_.assign(static_cast<std::size_t>(rows_ * width), 0);  // behind the last token there is padding, which nothing later sees
  for (std::int64_t row = 0; row < rows_; ++row) std::copy(tokens.begin(), tokens.end(), ids_.begin() + row * width);
  const auto position = static_cast<std::int32_t>(position_);
  state_.write_input(program, "ids", ids_.data(), static_cast<std::int64_t>(ids_.size() * sizeof(std::int32_t)));
  state_.write_input(program, position_name, &position, sizeof position);
  program.executable().run();
  program.executable().wait();
  position_ += static_cast<std::int64_t>(tokens.size());
}

std::span<const float> Generator::read(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw UsageError("there is no token to go on from; the prompt must have at least one");
  if (const auto count = static_cast<std::int64_t>(tokens.size()); position_ + count > longest_)
    throw UsageError(std::to_string(position_ + count) + " tokens are more than the " + std::to_string(longest_) +
                     " that the KV cache holds");
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_)
      throw UsageError("the prompt has the token " + std::to_string(token) + ", the model's vocabulary those from 0 to " +
                       std::to_string(vocabulary_ - 1) + ": the tokenizer is not the model's");
  }
  while (tokens.size() > 1 && position_ + stretch_ <= longest_) {
    const std::size_t count = std::min(tokens.size() - 1, static_cast<std::size_t>(stretch_));
    run(prompt_, tokens.first(count), stretch_);
    tokens = tokens.subspan(count);
  }
  for (; !tokens.empty(); tokens = tokens.subspan(1)) run(next_, tokens.first(1), 1);
  state_.read_metric(next_, logits_name, logits_);
  return std::span(logits_).first(static_cast<std::size_t>(vocabulary_));
}

}  // namespace consist
