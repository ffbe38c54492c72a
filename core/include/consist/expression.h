// Expressions: what ops such as `map` compute of the elements of their inputs, as text, as a graph and as steps for a loop.
//
// The inputs are a, b, c, ... in the order of the instruction's. In an expression stand
//   a            the element of input 0 at the place of the output's element; a tensor of the output's shape
//   b[c]         the element of input 1 for the output's channel; a vector as long as the output's last dimension
//   b[r]         the element for the output's row; the output's shape with 1 as its last dimension, or without that dimension
//   b[3]         element 3 of input 1, a vector; b[0] is also the way to read a scalar
//   b[b]         the element for the output's block of neighbouring elements; for rules of optimizers (consist/map_update.h)
//   2, 1e-6      constants
//   channel      the number of the output's channel, from 0
//   + - * / ()   with the usual precedence; the sign -
//   exp log sqrt rsqrt tanh erf sigmoid abs sign        functions of one argument
//   max(x, y) min(x, y) greater(x, y)                   greater: 1 where x > y, else 0
//   select(x, y, z)                                     y where x > 0, else z
//   relu silu gelu gelu_tanh softplus square            written for what they stand for; gelu by erf
// Several results are separated by ";". "t = x;" names a value for what follows and is no result. Names are one letter and a
// number: t0, u12.
//
// Integers (i32) are read as numbers. All arithmetic is in fp32 (in fp64 in the interpreter). Where a function has no derivative,
// the one from the side of its second argument is taken: that of relu is 0 at 0, that of abs is 0 at 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

enum class Function : std::uint8_t {
  input,
  constant,
  channel,
  add,
  subtract,
  multiply,
  divide,
  negate,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  abs,
  sign,
  max,
  min,
  greater,
  select,
};
CONSIST_API std::string_view name_of(Function function) noexcept;
CONSIST_API int arguments_of(Function function) noexcept;

/// The element of an input that an expression reads for one element of the output.
enum class Reads : std::uint8_t { same, channel, row, element, block };

struct ExpressionNode {
  Function function = Function::constant;
  std::array<int, 3> arguments{-1, -1, -1};  ///< nodes, each before this one
  double value = 0;                          ///< of a constant
  int input = -1;                            ///< and what is read of it, of Function::input
  Reads reads = Reads::same;
  int element = 0;
  bool operator==(const ExpressionNode&) const = default;
};

/// One step of a loop over elements: slot `to` = function of slots.
struct ExpressionStep {
  ExpressionNode node;  ///< its arguments are slots
  int to = 0;
};

/// The steps in order, the slots that they need, and those in which the results then lie.
struct ExpressionSteps {
  std::vector<ExpressionStep> steps;
  int slots = 0;
  std::vector<int> results;
};

/// Expressions over the same inputs. Equal values are one node. ERRORS: ProgramError. THREADS: const members from any.
class CONSIST_API Expressions {
 public:
  static constexpr int max_inputs = 12;
  static constexpr int max_steps = 96;  ///< of steps()

  /// ERRORS: what was expected, and at which character.
  static Expressions parse(std::string_view text);

  const std::vector<ExpressionNode>& nodes() const noexcept { return nodes_; }
  const std::vector<int>& results() const noexcept { return results_; }

  /// One more than the largest input that a result depends on.
  int inputs() const;
  /// The ways in which the results read an input; empty if they do not.
  std::vector<Reads> reads_of(int input) const;
  /// The first input that the results read so and in no other way; -1: none.
  int first_read(Reads how) const;
  /// One more than the largest element that is read of it as b[3].
  int elements_of(int input) const;
  /// True if a result depends on the number of the channel.
  bool reads_channel() const;

  /// True if each result is proportional to that input, the others being given: summands may stand for their sum.
  bool proportional_to(int input) const;
  /// The constant k if the results are one: k times input `input`, read at the same place.
  std::optional<double> multiple_of(int input) const;

  // To build: each returns a node. Constants are folded, and x + 0, x * 1, x * 0 and the like simplified.

  int constant(double value);
  int input(int index, Reads reads = Reads::same, int element = 0);
  int apply(Function function, std::array<int, 3> arguments);
  void set_results(std::vector<int> results) { results_ = std::move(results); }

  /// Sum over the results k of seeds[k] times the derivative of result k by `of`, an input node; seeds are nodes, -1: none. Adds
  /// nodes; results stay.
  int gradient(const std::vector<int>& seeds, int of);

  /// Adds the nodes of another's results, whose input k is input new_index[k] here, and returns these; results stay. ERRORS: an
  /// input that is read has none (-1).
  std::vector<int> append(const Expressions& other, const std::vector<int>& new_index);

  /// The same expressions with input k as new_index[k]. ERRORS: an input that is read has none (-1).
  Expressions renumbered(const std::vector<int>& new_index) const;

  /// Parses to the same results; the same text for equal results.
  std::string text() const;

  /// ERRORS: more than max_steps.
  ExpressionSteps steps() const;
  int step_count() const;  ///< those of steps(); may be more than max_steps

 private:
  int add(const ExpressionNode& node);
  bool is(int node, double value) const;
  std::vector<bool> live() const;

  std::vector<ExpressionNode> nodes_;
  std::vector<int> results_;
};

/// The shortest text that reads as this number, for expressions that are written with numbers of options.
CONSIST_API std::string number_text(double value);

/// The value of a function for numbers of type T, float or double.
template <typename T>
T evaluate(Function function, T x, T y, T z);
extern template CONSIST_API float evaluate<float>(Function function, float x, float y, float z);
extern template CONSIST_API double evaluate<double>(Function function, double x, double y, double z);

}  // namespace consist
