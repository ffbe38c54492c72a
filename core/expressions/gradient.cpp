// The derivatives of an expression, in reverse mode.
#include <numbers>

#include "consist/error.h"
#include "consist/expression.h"
#include "core/base/index.h"

namespace consist {
namespace {

/// Writes the derivatives of nodes into the graph that they belong to.
class Derivatives {
 public:
  explicit Derivatives(Expressions& graph) : graph_(graph) {}

  /// The derivative of node `n` by its argument `k`.
  int by_argument(int n, int k) {
    const ExpressionNode node = graph_.nodes()[index(n)];
    const int x = node.arguments[0], y = node.arguments[1];
    switch (node.function) {
      case Function::add:
        return number(1);
      case Function::subtract:
        return number(k == 0 ? 1 : -1);
      case Function::multiply:
        return k == 0 ? y : x;
      case Function::divide:
        return k == 0 ? two(Function::divide, number(1), y) : one(Function::negate, two(Function::divide, n, y));
      case Function::negate:
        return number(-1);
      case Function::exp:
        return n;
      case Function::log:
        return two(Function::divide, number(1), x);
      case Function::sqrt:
        return two(Function::divide, number(0.5), n);
      case Function::rsqrt:
        return times(number(-0.5), times(n, times(n, n)));
      case Function::tanh:
        return two(Function::subtract, number(1), times(n, n));
      case Function::erf:
        return times(number(2 * std::numbers::inv_sqrtpi), one(Function::exp, one(Function::negate, times(x, x))));
      case Function::sigmoid:
        return times(n, two(Function::subtract, number(1), n));
      case Function::abs:
        return one(Function::sign, x);
      case Function::max:
        return chosen(two(Function::greater, x, y), k);
      case Function::min:
        return chosen(two(Function::greater, y, x), k);
      case Function::select:
        if (k == 0) return number(0);
        return graph_.apply(Function::select, {x, number(k == 1 ? 1 : 0), number(k == 1 ? 0 : 1)});
      default:
        return number(0);  // sign, greater; inputs and constants have no arguments
    }
  }

 private:
  int number(double value) { return graph_.constant(value); }
  int one(Function function, int x) { return graph_.apply(function, {x, -1, -1}); }
  int two(Function function, int x, int y) { return graph_.apply(function, {x, y, -1}); }
  int times(int x, int y) { return two(Function::multiply, x, y); }
  /// 1 for the argument that was taken, the first where `first` is 1.
  int chosen(int first, int k) { return k == 0 ? first : two(Function::subtract, number(1), first); }

  Expressions& graph_;
};

}  // namespace

int Expressions::gradient(const std::vector<int>& seeds, int of) {
  if (seeds.size() != results_.size()) throw ProgramError("a gradient needs a seed for each result");
  const std::size_t count = nodes_.size();
  std::vector<int> adjoint(count, -1);
  const auto accumulate = [&](int node, int value) {
    int& sum = adjoint[index(node)];
    sum = sum < 0 ? value : apply(Function::add, {sum, value, -1});
  };
  for (std::size_t k = 0; k < seeds.size(); ++k) {
    if (seeds[k] >= 0) accumulate(results_[k], seeds[k]);
  }
  Derivatives derivatives(*this);
  for (std::size_t n = count; n-- > 0;) {
    if (adjoint[n] < 0) continue;
    const ExpressionNode node = nodes_[n];
    for (int k = 0; k < arguments_of(node.function); ++k) {
      const int inner = derivatives.by_argument(static_cast<int>(n), k);
      if (is(inner, 0)) continue;
      accumulate(node.arguments[index(k)], apply(Function::multiply, {adjoint[n], inner, -1}));
    }
  }
  return adjoint[index(of)] < 0 ? constant(0) : adjoint[index(of)];
}

}  // namespace consist
