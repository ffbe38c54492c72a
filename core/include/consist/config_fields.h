// Fields of a model's config.json (Hugging Face), as models read them: with errors that name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// The object in the text of a config.json. Throws DataError if it is none.
CONSIST_API nlohmann::json parse_config(std::string_view text);

/// Typed access to the fields of an object, which outlives this. Null counts as absent, as transformers writes it. ERRORS: all
/// throw DataError naming a field that is missing or of another type.
class CONSIST_API ConfigFields {
 public:
  /// `prefix` stands before names in errors: "rope_scaling."
  explicit ConfigFields(const nlohmann::json& object, std::string prefix = "");

  bool has(const char* name) const;
  bool is_null(const char* name) const;
  const nlohmann::json& operator[](const char* name) const;

  std::int64_t integer(const char* name) const;
  std::int64_t integer_or(const char* name, std::int64_t fallback) const;
  double number(const char* name) const;
  double number_or(const char* name, double fallback) const;
  bool boolean_or(const char* name, bool fallback) const;
  std::string text_or(const char* name, const char* fallback) const;

  /// Leave `value` as it is where the field is absent. An integer must be `least` to 2^24, a number above 0.
  void read(const char* name, std::int64_t& value, std::int64_t least = 1) const;
  void read(const char* name, double& value) const;
  void read(const char* name, bool& value) const;

  /// Refuses a field with another value than the one that a model supports.
  void only(const char* name, const nlohmann::json& supported) const;
  void require(const char* name) const;
  [[noreturn]] void refuse(const char* name, const std::string& wanted) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
};

}  // namespace consist
