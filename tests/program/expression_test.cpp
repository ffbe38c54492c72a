// Expressions: their text, their derivatives, and the steps of a loop, at random.
#include "consist/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "consist/error.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

/// The results for inputs of one element each.
std::vector<double> values_of(const Expressions& f, const std::vector<double>& inputs) {
  std::vector<double> value;
  for (const ExpressionNode& node : f.nodes()) {
    std::array<double, 3> x{};
    for (std::size_t k = 0; k < static_cast<std::size_t>(arguments_of(node.function)); ++k)
      x[k] = value[static_cast<std::size_t>(node.arguments[k])];
    if (node.function == Function::constant)
      value.push_back(node.value);
    else if (node.function == Function::input)
      value.push_back(node.input < 0 ? 0 : inputs.at(static_cast<std::size_t>(node.input)));
    else
      value.push_back(evaluate<double>(node.function, x[0], x[1], x[2]));
  }
  std::vector<double> results;
  for (const int result : f.results()) results.push_back(value[static_cast<std::size_t>(result)]);
  return results;
}

/// The same by steps().
std::vector<double> values_by_steps(const Expressions& f, const std::vector<double>& inputs) {
  const ExpressionSteps plan = f.steps();
  std::vector<double> slots(static_cast<std::size_t>(plan.slots), std::nan(""));
  for (const ExpressionStep& step : plan.steps) {
    std::array<double, 3> x{};
    for (std::size_t k = 0; k < static_cast<std::size_t>(arguments_of(step.node.function)); ++k)
      x[k] = slots.at(static_cast<std::size_t>(step.node.arguments[k]));
    double& to = slots.at(static_cast<std::size_t>(step.to));
    if (step.node.function == Function::constant)
      to = step.node.value;
    else if (step.node.function == Function::input)
      to = inputs.at(static_cast<std::size_t>(step.node.input));
    else
      to = evaluate<double>(step.node.function, x[0], x[1], x[2]);
  }
  std::vector<double> results;
  for (const int result : plan.results) results.push_back(slots.at(static_cast<std::size_t>(result)));
  return results;
}

class RandomExpression {
 public:
  explicit RandomExpression(unsigned seed) : random_(seed) {}

  Expressions make(int results) {
    std::vector<int> roots;
    for (int k = 0; k < results; ++k) roots.push_back(tree(4));
    f_.set_results(roots);
    return f_;
  }
  std::vector<double> inputs() {
    std::uniform_real_distribution<double> uniform(-1.5, 1.5);
    std::vector<double> made(Expressions::max_inputs);
    for (double& x : made) x = uniform(random_);
    return made;
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  int tree(int depth) {
    if (depth == 0 || below(6) == 0) return below(4) == 0 ? f_.constant(below(7) - 3.0) : f_.input(below(3));
    // exp and log grow out of range, and have derivatives like others
    constexpr std::array<Function, 12> functions{Function::add,  Function::subtract, Function::multiply, Function::negate,
                                                 Function::tanh, Function::erf,      Function::sigmoid,  Function::abs,
                                                 Function::max,  Function::min,      Function::select,   Function::divide};
    const Function function = functions[static_cast<std::size_t>(below(12))];
    std::array<int, 3> arguments{-1, -1, -1};
    for (int k = 0; k < arguments_of(function); ++k) arguments[static_cast<std::size_t>(k)] = tree(depth - 1);
    if (function == Function::divide) {  // by something that is not near 0
      const int square = f_.apply(Function::multiply, {arguments[1], arguments[1], -1});
      arguments[1] = f_.apply(Function::add, {f_.constant(1), square, -1});
    }
    return f_.apply(function, arguments);
  }

  std::mt19937 random_;
  Expressions f_;
};

std::string error_of(const std::string& text) {
  try {
    Expressions::parse(text);
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was wrong";
}

TEST(Expression, ReadsWhatItWrites) {
  for (const char* text : {"a", "a+b*c", "(a+b)*c", "a-(b-c)", "a/(b/c)", "-a*b[c]", "a*b[r]+c[0]-d[12]", "select(a,b,-2)",
                           "a-(-2)", "select(abs(channel-b[r]),0,a)", "t0=tanh(a);t0*b;t0", "0.1*a", "1e-06*a", "max(a,0)"})
    EXPECT_EQ(Expressions::parse(text).text(), text);
  EXPECT_EQ(Expressions::parse(" t1 = a * b ; t1 * t1 ").text(), "t0=a*b;t0*t0");
  EXPECT_EQ(Expressions::parse("silu(a)").text(), "a*sigmoid(a)");
  EXPECT_EQ(Expressions::parse("1*a+0*b-0").text(), "a");
  EXPECT_EQ(Expressions::parse("2*3*a").text(), "6*a");
}

TEST(Expression, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(error_of("silu(a"), HasSubstr("expected ')' at character 7, which is its end"));
  EXPECT_THAT(error_of("a+"), HasSubstr("expected a value at character 3"));
  EXPECT_THAT(error_of("a b"), HasSubstr("expected an operator, ';' or the end at character 3, found 'b'"));
  EXPECT_THAT(error_of("swish(a)"),
              HasSubstr("expected a function, which 'swish' of 1 is not (consist/expression.h lists them)"));
  EXPECT_THAT(error_of("max(a)"), HasSubstr("2 arguments of 'max'"));
  EXPECT_THAT(error_of("z"), HasSubstr("expected an input (a to l)"));
  EXPECT_THAT(error_of("a[x]"), HasSubstr("expected c, r, b or an element's number"));
  EXPECT_THAT(error_of("t0=a"), HasSubstr("expected a result"));
  EXPECT_THAT(error_of("t0=a;t0=b;t0"), HasSubstr("expected a name that stands for nothing yet"));
  EXPECT_THAT(error_of("log(0)*a"), HasSubstr("'log' of constants is not finite"));
  EXPECT_THAT(error_of(std::string(200, '(') + "a"), HasSubstr("expected fewer levels"));
  EXPECT_THAT(error_of(std::string(200, '-') + "a"), HasSubstr("expected fewer levels"));
}

TEST(Expression, SoftplusHasItsDerivativeOnBothSidesAndBetween) {
  for (const double x : {-200.0, -1.5, 0.0, 0.7, 200.0}) {
    Expressions f = Expressions::parse("softplus(a)");
    f.set_results({f.results()[0], f.gradient({f.constant(1)}, f.input(0))});
    const std::vector<double> found = values_of(f, {x});
    EXPECT_NEAR(found[0], std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))), 1e-12) << x;
    EXPECT_NEAR(found[1], 1 / (1 + std::exp(-x)), 1e-12) << x;
  }
}

TEST(Expression, KnowsWhatItReadsAndScales) {
  const Expressions f = Expressions::parse("a*b[c]+2*a*c[3]");
  EXPECT_EQ(f.inputs(), 3);
  EXPECT_EQ(f.reads_of(1), std::vector{Reads::channel});
  EXPECT_EQ(f.elements_of(2), 4);
  EXPECT_TRUE(f.proportional_to(0));
  EXPECT_FALSE(f.proportional_to(1));
  EXPECT_FALSE(Expressions::parse("a+1").proportional_to(0));
  EXPECT_FALSE(Expressions::parse("a*a").proportional_to(0));
  EXPECT_EQ(Expressions::parse("a*-3").multiple_of(0), -3);
  EXPECT_EQ(Expressions::parse("a").multiple_of(0), 1);
  EXPECT_FALSE(Expressions::parse("a*b").multiple_of(0));
  EXPECT_EQ(Expressions::parse("b+1;c").renumbered({-1, 1, 0}).text(), "b+1;a");
}

TEST(Expression, RefusesMoreStepsThanALoopTakes) {
  std::string text = "a";
  for (int k = 0; k < 120; ++k) text = "tanh(" + text.substr(0, text.size()) + "*b" + ")";
  EXPECT_THROW(Expressions::parse(text), ProgramError);  // too deep
  std::string wide = "a";
  for (int k = 0; k < 120; ++k) wide += "+tanh(a*" + std::to_string(k + 2) + ")";
  try {
    Expressions::parse(wide).steps();
    ADD_FAILURE() << "was taken";
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), HasSubstr("steps, at most 96 are possible: divide it into two"));
  }
}

TEST(Expression, RandomOnesAreTheSameAsTextAndAsSteps) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomExpression random(seed);
    const Expressions f = random.make(2), again = Expressions::parse(f.text());
    ASSERT_EQ(again.text(), f.text()) << seed;
    const std::vector<double> inputs = random.inputs(), expected = values_of(f, inputs);
    ASSERT_EQ(values_of(again, inputs), expected) << f.text();
    ASSERT_EQ(values_by_steps(f, inputs), expected) << f.text();
  }
}

TEST(Expression, RandomDerivativesAreThoseByDifferences) {
  int compared = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomExpression random(1000 + seed);
    Expressions f = random.make(2);
    const std::vector<int> results = f.results();
    const int seed_node = f.input(3), of = f.input(0);
    const Expressions forward = f;
    f.set_results(results);
    const int derivative = f.gradient({seed_node, -1}, of);
    f.set_results({derivative});
    std::vector<double> inputs = random.inputs();
    const double found = values_of(f, inputs)[0];
    constexpr double h = 1e-5;
    const auto at = [&](double shift) {
      std::vector<double> moved = inputs;
      moved[0] += shift;
      return values_of(forward, moved)[0];
    };
    // Beside a kink of abs, max or select the differences on both sides differ.
    const double above = (at(h) - at(0)) / h, below = (at(0) - at(-h)) / h, expected = inputs[3] * (above + below) / 2;
    if (std::abs(above - below) > 1e-2 * std::max(1.0, std::abs(above))) continue;
    ++compared;
    ASSERT_NEAR(found, expected, 1e-4 * std::max(1.0, std::abs(expected))) << forward.text() << "\n" << f.text();
  }
  EXPECT_GT(compared, 450);
}

}  // namespace
}  // namespace consist
