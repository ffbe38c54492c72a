// An object of a machine file: reading its keys with errors that say where they stand.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/json_input.h"

namespace consist {

inline nlohmann::ordered_json json_of(const Figure& figure) {
  return {{"value", figure.value}, {"source", name_of(figure.source)}};
}

/// Figures of machines are 0 or lie between these, whatever their unit: beyond them no machine is, and products and quotients of
/// several leave the numbers that there are.
inline constexpr double least_figure = 1e-12, most_figure = 1e18;
inline constexpr const char* figure_bounds = "between 1e-12 and 1e18";

/// Whether a finite number is 0 or a figure of a machine by its size.
inline bool is_figure(double number) {
  return number == 0 || (std::abs(number) >= least_figure && std::abs(number) <= most_figure);
}

/// "curves[3]".
inline std::string item(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

/// An object of the file, whose keys are all to be read.
class FileObject {
 public:
  FileObject(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw DataError(where_ + " must be an object, not " + shown(json));
  }

  /// Throws DataError for keys that nobody asked for.
  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      if (key != "note" && !read_.contains(key)) throw DataError(where_ + " has the unknown key " + shown(key));
    }
  }
  bool has(const char* key) const { return json_.contains(key); }
  /// By name, without "note".
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const auto& [key, value] : json_.items()) {
      if (key != "note") all.push_back(key);
    }
    return all;
  }
  std::string name(const char* key) const { return where_ + ": " + key; }
  const nlohmann::json& at(const char* key) {
    const auto found = json_.find(key);
    if (found == json_.end()) throw DataError(where_ + " lacks the key \"" + key + "\"");
    read_.insert(key);
    return *found;
  }
  FileObject object(const char* key) { return FileObject(at(key), name(key)); }
  std::string text(const char* key) {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) throw DataError(name(key) + " must be a text, not " + shown(value));
    return value.get<std::string>();
  }
  const nlohmann::json& list(const char* key) {
    const nlohmann::json& value = at(key);
    if (!value.is_array()) throw DataError(name(key) + " must be a list, not " + shown(value));
    return value;
  }
  /// A number from `least` on, or above it.
  double number(const char* key, double least, bool above = false) {
    const nlohmann::json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(number) || number < least || (above && number == least))
      throw DataError(name(key) + " must be a number " + (above ? "above " : "of at least ") + shown(nlohmann::json(least)) +
                      ", not " + shown(value));
    if (!is_figure(number)) throw DataError(name(key) + " is " + shown(value) + "; a figure of a machine is " + figure_bounds);
    return number;
  }
  /// A whole number from `least` to a million.
  int whole(const char* key, int least) {
    const double number = this->number(key, least);
    if (number != std::floor(number) || number > 1e6)
      throw DataError(name(key) + " must be a whole number up to a million, not " + shown(at(key)));
    return static_cast<int>(number);
  }
  FigureSource source() {
    constexpr FigureSource sources[] = {FigureSource::data_sheet, FigureSource::measured, FigureSource::measured_here,
                                        FigureSource::given};
    const std::string given = text("source");
    for (FigureSource source : sources) {
      if (name_of(source) == given) return source;
    }
    std::string known;
    for (FigureSource source : sources) known += (known.empty() ? "\"" : ", \"") + std::string(name_of(source)) + "\"";
    throw DataError(name("source") + " is " + shown(nlohmann::json(given)) + "; it can be " + known);
  }
  /// An object of a value, where it comes from, and perhaps a note.
  Figure figure(const char* key, double least, bool above = false) {
    FileObject object = this->object(key);
    const Figure figure{object.number("value", least, above), object.source()};
    object.finish();
    return figure;
  }
  /// A fraction above 0, up to 1.
  Figure share(const char* key) {
    const Figure figure = this->figure(key, 0, true);
    if (figure.value > 1) throw DataError(name(key) + " is a share: at most 1, not " + shown(nlohmann::json(figure.value)));
    return figure;
  }

 private:
  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> read_;
};

}  // namespace consist
