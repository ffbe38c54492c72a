// Rules for the keys of another trainer's file: each is honoured, without effect for a reason, or refused by name.
#pragma once

#include <string_view>

namespace consist::readers {

enum class KeyKind {
  own,            ///< read by name, by code of its own
  count,          ///< a number that becomes the strategy's option `argument`
  flag,           ///< a truth value that becomes the strategy's option `argument`
  no_effect,      ///< for the reason `argument`
  only,           ///< honoured if its value is (as JSON) one of `argument`, separated by '|'; another is refused
  group,          ///< an object whose keys are listed themselves
  off,            ///< an object or flag that must not be enabled
  ignored_group,  ///< an object without effect, for the reason `argument`
};

struct KeyRule {
  std::string_view path;  ///< "zero_optimization.stage"
  KeyKind key;
  std::string_view argument = {};
};

}  // namespace consist::readers
