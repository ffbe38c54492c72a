// Errors drawn at random, planted into the programs of layouts drawn at random: the comparison with one rank notices each that
// changes any value. CONSIST_ERRORS=<number> plants so many in each part.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>

#include "consist/error.h"
#include "consist/op.h"
#include "tests/interpreter/cell.h"
#include "tests/interpreter/random_configuration.h"

namespace consist::interpreter {
namespace {

constexpr int parts = 8;

int of_each_part() {
  const char* given = std::getenv("CONSIST_ERRORS");
  return given == nullptr ? 15 : std::atoi(given);
}

/// One error in one instruction of a rank's program; nothing is planted where the instruction has no place for it.
class RandomError {
 public:
  RandomError(Planned& step, std::mt19937_64& random) : step_(step), random_(random) {}

  /// Returns what was planted.
  std::optional<std::string> plant() {
    Program& program = step_.program;
    const std::size_t at = draw_below(program.instructions.size());
    Instruction& i = program.instructions[at];
    if (!i.op->touches_memory() || i.outputs.empty()) return std::nullopt;
    const std::string where = place_of(program, static_cast<InstructionId>(at)) + ": ";
    switch (draw_below(4)) {
      case 0:
        return leave_out(i, where);
      case 1:
        return swap_operands(i, where);
      case 2:
        return scale_attribute(i, where);
      default:
        return read_another(at, where);
    }
  }

 private:
  std::size_t draw_below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

  /// The bytes that it would write stay as they are.
  static std::optional<std::string> leave_out(Instruction& i, const std::string& where) {
    i.op = &registry().get("release");
    i.outputs.clear();
    i.attributes = {};
    return where + "is left out";
  }

  std::optional<std::string> swap_operands(Instruction& i, const std::string& where) {
    if (i.op->is_additive() || i.op->adds_pairs() || i.inputs.size() < 2) return std::nullopt;
    const std::size_t one = draw_below(i.inputs.size()), other = draw_below(i.inputs.size());
    if (!alike(i.inputs[one], i.inputs[other])) return std::nullopt;
    std::swap(i.inputs[one], i.inputs[other]);
    return where + "inputs " + std::to_string(one) + " and " + std::to_string(other) + " are swapped";
  }

  std::optional<std::string> scale_attribute(Instruction& i, const std::string& where) {
    std::vector<std::string> names;
    for (const auto& [name, value] : i.attributes.all()) {
      if (const double* number = std::get_if<double>(&value); number != nullptr && *number != 0) names.push_back(name);
    }
    if (names.empty()) return std::nullopt;
    const std::string& name = names[draw_below(names.size())];
    i.attributes.set(name, 2 * i.attributes.real(name));
    return where + name + " is doubled";
  }

  /// An older tensor of the same type is read in place of an input.
  std::optional<std::string> read_another(std::size_t at, const std::string& where) {
    Instruction& i = step_.program.instructions[at];
    if (i.inputs.empty()) return std::nullopt;
    const std::size_t input = draw_below(i.inputs.size());
    std::set<TensorId> others;
    for (std::size_t before = 0; before < at; ++before) {
      for (const TensorId made : step_.program.instructions[before].outputs) {
        if (alike(made, i.inputs[input])) others.insert(made);
      }
    }
    if (others.empty()) return std::nullopt;
    const TensorId other = *std::next(others.begin(), static_cast<std::ptrdiff_t>(draw_below(others.size())));
    i.inputs[input] = other;
    return where + "reads '" + step_.program[other].name + "' in place of input " + std::to_string(input);
  }

  bool alike(TensorId one, TensorId other) const {
    if (one == no_tensor || other == no_tensor) return false;
    const Program& p = step_.program;
    return p[one].storage != p[other].storage && p[one].dtype == p[other].dtype && p[one].shape == p[other].shape &&
           p[one].placements == p[other].placements;
  }

  Planned& step_;
  std::mt19937_64& random_;
};

/// A legal run, compiled.
std::unique_ptr<RankPrograms> compile_any(std::mt19937_64& random, std::string& text) {
  while (true) {
    const RandomConfiguration drawn = draw(random);
    text = text_of(drawn.model, drawn.words);
    try {
      return compile(config_of(drawn.model, drawn.words), 256);
    } catch (const UsageError&) {  // the next one
    }
  }
}

constexpr std::uint64_t order = 3;

/// True if the planted programs give the values of the right ones, to the last bit: of a window of one token, say, the gradients
/// of queries are zero, whoever adds them.
bool changes_nothing(const RankPrograms& planted, const RankPrograms& right) {
  const Outcome found = run(planted, {.order = order}), expected = run(right, {.order = order});
  return found.evaluation == expected.evaluation && prove::differences(found, expected, 0).empty();
}

class RandomErrors : public ::testing::TestWithParam<int> {};

TEST_P(RandomErrors, AreNoticed) {
  std::mt19937_64 random(20261128 + static_cast<std::uint64_t>(GetParam()));
  int without_effect = 0;
  for (int done = 0; done < of_each_part(); ++done) {
    std::string text;
    const std::unique_ptr<RankPrograms> programs = compile_any(random, text);
    std::vector<Planned> right = programs->steps;
    std::optional<std::string> planted;
    while (!planted) {
      const std::size_t rank = std::uniform_int_distribution<std::size_t>(0, right.size() - 1)(random);
      planted = RandomError(programs->steps[rank], random).plant();
    }
    if (!wrong_in_run(*programs, order).empty()) continue;
    RankPrograms unplanted = *programs;
    unplanted.steps = std::move(right);
    ++without_effect;
    EXPECT_TRUE(changes_nothing(*programs, unplanted)) << text << "\n" << *planted;
  }
  std::printf("%d errors were planted, %d without any effect\n", of_each_part(), without_effect);
  EXPECT_LE(without_effect, of_each_part() / 3);
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomErrors, ::testing::Range(0, parts));

}  // namespace
}  // namespace consist::interpreter
