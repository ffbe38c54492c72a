// Text from a model: the logits that follow a sequence of tokens, by programs that keep keys and values of what they have read
// (core/compile/with_cache.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "consist/export.h"
#include "core/plan/plan.h"
#include "core/state/training_state.h"

namespace consist {

/// Tokens of a prompt that one program reads at once.
inline constexpr std::int64_t prompt_stretch = 64;

/// The two programs of a rank: prefill_program reads prompt_stretch tokens (fewer where there is no room for as many), and
/// decode_program, the first of them, one, of which it makes logits. `longest`: tokens of the longest sequence, what is generated
/// included.
CONSIST_API NamedPrograms text_programs(const Plan& plan, std::int64_t longest, int rank = 0);

/// Room for `tokens` tokens, in whole stretches of prompts where the model has so many positions (0: as many as one likes).
CONSIST_API std::int64_t room_for(std::int64_t tokens, std::int64_t positions);

/// Not thread-safe; the state, which holds the programs, their caches and the weights, must outlive it. Where sequences are
/// divided over ranks each rank reads the same tokens.
class CONSIST_API Generator {
 public:
  /// The state is allocated and has text_programs(), which run alone as long as this is used.
  explicit Generator(TrainingState& state);

  /// Forgets what was read.
  void restart() noexcept { position_ = 0; }
  /// Reads tokens behind those that were read before; returns the logits of the one that follows, valid until the next call.
  /// Throws UsageError for a token that the vocabulary lacks, and where there is no room.
  std::span<const float> read(std::span<const std::int32_t> tokens);
  std::int64_t longest() const noexcept { return longest_; }
  std::int64_t position() const noexcept { return position_; }  ///< how many tokens were read

 private:
  void run(PreparedProgram& program, std::span<const std::int32_t> tokens, std::int64_t width);

  TrainingState& state_;
  PreparedProgram &prompt_, &next_;
  std::int64_t stretch_, longest_, rows_, vocabulary_;
  std::int64_t position_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace consist
