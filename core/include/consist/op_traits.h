// Traits: properties that passes and strategies ask an op for, so that they need not know its name. An op of a plugin with a
// trait is treated like the core's ops that have it. The default of each trait means "not known", which is always safe: code
// that needs the trait leaves the op as it is, or refuses the layout with an error that names the op.
#pragma once

#include <cstdint>

namespace consist {

/// The data movement of an op between the ranks of the mesh axes in its attribute "axis".
enum class Movement : std::uint8_t {
  none,            ///< nothing, or a collective of a kind of its own
  all_reduce,      ///< each rank gets the sum of all ranks' tensors; one output for each input
  reduce_scatter,  ///< each rank gets its slice of that sum, along attribute "dim"; -1: flat
  all_gather,      ///< each rank gets the slices of all, along attribute "dim"; -1: flat
  slice,           ///< each rank keeps its slice of an unsharded tensor, along attribute "dim"; nothing is sent
  send,            ///< input 0 to a neighbour (attribute "lane", see Lane)
  receive,         ///< output 0 from a neighbour
};

/// The part of y = x wᵀ + bias that an op computes; x [batch, sequence, in], w [out, in].
enum class LinearPart : std::uint8_t {
  none,
  product,          ///< inputs x, w, bias?; output y. Its gradients read x and w, never y
  input_gradient,   ///< inputs dy, w, sum?; output dx
  weight_gradient,  ///< inputs x, dy, sum?; output dw
};

/// The dimensions of activations [batch, sequence, channels] along which an op may be cut into independent slices. Inputs and
/// outputs are cut alike; tensors without these dimensions (weights, tables) are read by every slice.
enum class Separable : std::uint8_t {
  no,
  sequences,  ///< along the batch
  tokens,     ///< along the batch and along the sequence
};

/// Reorderings of tokens, the same for all inputs, under which an op makes the same values: tokens of its outputs are then in the
/// new order, and sums over tokens stay as they are. It also says that no input without tokens depends on positions, but for
/// that of Op::position_rows().
enum class TokenOrder : std::uint8_t {
  fixed,      ///< none is known: it may look at neighbours or positions
  sequences,  ///< of the tokens within each sequence, such as a sum over each sequence
  any,        ///< of all tokens of the batch: each token by itself, or a sum over all tokens
};

/// The use that an op makes of a table [vocabulary, channels], its input 1.
enum class VocabularyUse : std::uint8_t {
  none,
  /// Output 0 is rows of the table, by the ids in input 0. With attribute "vocabulary" (rows of the unsharded table) the op
  /// accepts a table that is sharded along its rows; outputs are then partial.
  lookup,
  /// The cross-entropy of the product of input 0, [batch, sequence, channels], and the table, against the ids in input 2, times
  /// attribute "scale". vocabulary_logits and vocabulary_loss compute the same with a table that is sharded along its rows.
  loss,
};

/// Inputs and outputs of an op that works on the sum of two of its inputs and also makes that sum. It must accept the sum itself
/// in the place of `x`, with `residual` and `sum` absent.
struct ResidualSum {
  int x = 0;         ///< input
  int residual = 1;  ///< input; may be absent
  int sum = 1;       ///< output; absent where `residual` is
};

/// A way to shard an op along the channels of activations [batch, sequence, channels].
struct ChannelSplit {
  /// Number of leading inputs that are activations: if each is cut along its channels into equal slices, they give the same slice
  /// of output 0.
  int inputs = 0;
  /// Channels that must stay together, as those of a head; 1: none must. Inputs may have different numbers of such
  /// groups, as queries and keys of grouped attention.
  std::int64_t unit = 1;
  /// The same of the last of these inputs and of output 0, if they have another: values of attention; 0: they have not.
  std::int64_t last_unit = 0;

  std::int64_t unit_of(std::size_t input) const {
    return last_unit > 0 && input + 1 == static_cast<std::size_t>(inputs) ? last_unit : unit;
  }
};

}  // namespace consist
