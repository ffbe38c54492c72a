// A bounded interpreter of Jinja, for the programs by which models write conversations: what transformers' apply_chat_template
// allows (loops with break and continue, macros, namespaces, {% generation %}) with its settings. It reads no file, calls no code
// and changes nothing of what it is given; what it may do is limited before it begins.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "datasets/jinja/ast.h"
#include "datasets/jinja/value.h"

namespace consist::jinja {

/// Error that a program raises by raise_exception().
class Refusal : public DataError {
 public:
  using DataError::DataError;
};

inline constexpr std::size_t most_program_bytes = std::size_t{1} << 20;

struct RenderLimits {
  std::int64_t steps = 20'000'000;  ///< of the interpreter, of which one evaluates a part of an expression or copies 32 bytes
  std::size_t bytes = std::size_t{64} << 20;  ///< of the longest text
};

struct Rendering {
  Text text;
  std::vector<std::pair<std::size_t, std::size_t>> generated;  ///< bytes within {% generation %}
};

/// Immutable; render() may be called from several threads with values of their own.
class Template {
 public:
  /// Throws DataError "line 3: ..." for a program that is wrong, or that has what is not supported.
  explicit Template(std::string_view program);

  /// `now`: what strftime_now() says; without it there is no such function. Throws Refusal for what the program refuses,
  /// DataError "line 3: ..." for a mistake that it meets, and for one that is too long or takes too long.
  Rendering render(std::vector<std::pair<std::string, Value>> variables, const RenderLimits& limits,
                   const std::optional<std::tm>& now = std::nullopt) const;

  bool marks_generation() const { return marks_generation_; }

 private:
  std::shared_ptr<const Body> body_;
  bool marks_generation_ = false;
};

}  // namespace consist::jinja
