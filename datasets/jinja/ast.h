// A program in Jinja as a tree.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/jinja/value.h"

namespace consist::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// An expression. `parts` are its operands; of a call, a filter and a test the first is what it is of, the others are arguments.
struct Node {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    dict,       ///< key, value, key, value
    attribute,  ///< .name
    item,       ///< [parts[1]]
    slice,      ///< [parts[1]:parts[2]:parts[3]], null where one is left out
    call,
    filter,
    test,
    negated,  ///< not
    minus,
    plus,
    binary,       ///< operation: + - * / // % ** ~
    comparison,   ///< parts[0] operations[0] parts[1] operations[1] ...
    both,         ///< and
    either,       ///< or
    conditional,  ///< parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind = Kind::constant;
  int line = 1;
  int height = 1;         ///< nodes in each other, down to the deepest
  std::string name = {};  ///< of a name, an attribute, a filter, a test, an operation
  Value value = {};       ///< of a constant
  std::vector<NodePtr> parts = {};
  std::vector<std::string> operations = {};
  std::vector<std::pair<std::string, NodePtr>> named = {};  ///< arguments by name
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind { data, print, branch, loop, set, set_block, macro, generation, filter, with, leave, next };
  Kind kind = Kind::data;
  int line = 1;
  std::string text = {};                  ///< data; the name of a macro
  std::vector<std::string> targets = {};  ///< of loop and set; parameters of a macro
  std::string attribute = {};             ///< of set: targets[0].attribute
  NodePtr expression = {};                ///< print, set; what a loop goes through; a filter block's filter
  NodePtr condition = {};                 ///< of a loop: "if"
  std::vector<NodePtr> conditions =
      {};  ///< of a branch, null for else; defaults of a macro's parameters, null where there is none; of with
  std::vector<Body> bodies = {};  ///< of a branch one for each condition; of a loop its body and that of else
};

/// Throws DataError "line 3: ...".
Body parse(std::string_view program);

}  // namespace consist::jinja
