#include "launch/import/common/yaml.h"

#if __has_include(<yaml-cpp/yaml.h>)
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#endif

#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/lower.h"

namespace consist::readers {

using Json = nlohmann::json;

#if __has_include(<yaml-cpp/yaml.h>)
namespace {

constexpr std::size_t most_depth = 32;
constexpr std::size_t most_values = 100'000;

std::optional<Json> number_of(std::string text) {
  std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  const bool digits = text.find_first_of("0123456789") != std::string::npos;
  if (!digits || text.find_first_not_of("0123456789+-.eE") != std::string::npos) return std::nullopt;
  const char* const end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error == std::errc() && stop == end)
    return Json(whole);
  double real = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, real);
  if (error != std::errc() || stop != end || !std::isfinite(real)) return std::nullopt;
  return Json(real);
}

Json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  const std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  const std::optional<Json> number = number_of(text);
  return number ? *number : Json(text);
}

/// Builds the tree from the parser's events, within limits.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}
  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { add(mark, nullptr); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    refuse(mark, "an alias (*name) is not read; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/, const std::string& value) override {
    const bool plain = tag == "?" || tag.empty();
    if (awaits_key()) return take_key(mark, value);
    add(mark, plain ? plain_scalar(value) : Json(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, Json::array());
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, Json::object());
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    Json* value;
    std::optional<std::string> key = {};  ///< of a map: read, and its value not yet
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& why) const {
    throw DataError(name_ + ", line " + std::to_string(mark.line + 1) + ": " + why);
  }
  bool awaits_key() const { return !open_.empty() && open_.back().value->is_object() && !open_.back().key; }
  void take_key(const YAML::Mark& mark, const std::string& key) {
    if (open_.back().value->contains(key)) refuse(mark, "the key " + in_quotes(key) + " stands there twice");
    open_.back().key = key;
  }
  Json* add(const YAML::Mark& mark, Json value) {
    if (++values_ > most_values) refuse(mark, "there are more than " + std::to_string(most_values) + " values");
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (awaits_key()) refuse(mark, "a key must be a text");
    Open& holder = open_.back();
    if (holder.value->is_array()) {
      holder.value->push_back(std::move(value));
      return &holder.value->back();
    }
    Json& place = (*holder.value)[*holder.key];
    place = std::move(value);
    holder.key.reset();
    return &place;
  }
  void open(const YAML::Mark& mark, Json value) {
    if (open_.size() == most_depth) refuse(mark, "values are nested deeper than " + std::to_string(most_depth) + " levels");
    // Pointers stay good: a list grows only while none of its elements is open.
    open_.push_back({add(mark, std::move(value))});
  }

  std::string name_;
  Json root_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
};

}  // namespace

Json parse_yaml(const std::string& text, const std::string& name) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Builder builder(name);
    if (!parser.HandleNextDocument(builder)) return nullptr;
    Builder second(name);
    if (parser.HandleNextDocument(second) && !second.take().is_null())
      throw DataError(name + " has several documents; one is read");
    return builder.take();
  } catch (const YAML::Exception& error) {
    throw DataError(name + ", line " + std::to_string(error.mark.line + 1) + ": " + printable(error.msg));
  }
}

#else

Json parse_yaml(const std::string& /*text*/, const std::string& name) {
  throw UsageError(name +
                   " is YAML, which this build cannot read: install libyaml-cpp-dev (launch/packages.txt) and build again");
}

#endif

}  // namespace consist::readers
