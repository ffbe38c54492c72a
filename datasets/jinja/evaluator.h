// Expressions, and the variables that they see.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/jinja/ast.h"
#include "datasets/jinja/builtins.h"

namespace consist::jinja {

class Scope;
using ScopePtr = std::shared_ptr<Scope>;

/// Variables of a block. What is set in a loop's body or in a macro is gone behind it.
class Scope {
 public:
  static ScopePtr within(const ScopePtr& outer) {
    auto scope = std::make_shared<Scope>();
    scope->outer_ = outer;
    return scope;
  }
  /// Undefined if there is none.
  Value find(const std::string& name) const;
  void set(const std::string& name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> variables_;
  ScopePtr outer_;
};

class Evaluator {
 public:
  explicit Evaluator(Budget& budget) : budget_(budget) {}

  Value evaluate(const Node& node, const Scope& scope);
  /// The filters of a block, whose innermost is of `of`.
  Value filtered(const Node& filter, Value of, const Scope& scope);

  /// One level deeper, until the object goes. Throws DataError where it is too deep.
  class Deeper {
   public:
    explicit Deeper(Evaluator& evaluator);
    ~Deeper() { --evaluator_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Evaluator& evaluator_;
  };

 private:
  Arguments arguments_of(const Node& node, const Scope& scope);
  Value collection(const Node& node, const Scope& scope);
  Value call(const Node& node, const Scope& scope);
  Value slice(const Node& node, const Scope& scope);
  Value comparison(const Node& node, const Scope& scope);
  Value binary(const Node& node, const Scope& scope);
  Value sum(const Value& a, const Value& b);
  Value product(const Value& a, const Value& b);
  static Value arithmetic(const std::string& operation, const Value& a, const Value& b);

  Budget& budget_;
  int depth_ = 0;
};

}  // namespace consist::jinja
