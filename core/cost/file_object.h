// An object of a machine file: reading its keys with errors that say where they stand.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "consist/cost.h"

namespace consist {

nlohmann::ordered_json json_of(const Figure& figure);

/// Figures of machines are 0 or lie between these, whatever their unit: beyond them no machine is, and products and quotients of
/// several leave the numbers that there are.
inline constexpr double least_figure = 1e-12, most_figure = 1e18;
inline constexpr const char* figure_bounds = "between 1e-12 and 1e18";

/// True if a finite number is 0 or its magnitude lies within figure_bounds.
bool is_figure(double number);

/// "curves[3]".
std::string item(const std::string& list, std::size_t index);

/// An object of the file, whose keys are all to be read. Each member that reads throws DataError with the key's place and value.
class FileObject {
 public:
  /// Refers to `json`, which outlives it.
  FileObject(const nlohmann::json& json, std::string where);

  /// Throws DataError for keys that nobody asked for.
  void finish() const;
  bool has(const char* key) const;
  /// By name, without "note".
  std::vector<std::string> keys() const;
  std::string name(const char* key) const { return where_ + ": " + key; }
  const nlohmann::json& at(const char* key);
  FileObject object(const char* key) { return FileObject(at(key), name(key)); }
  std::string text(const char* key);
  const nlohmann::json& list(const char* key);
  /// A number from `least` on, or above it.
  double number(const char* key, double least, bool above = false);
  /// A whole number from `least` to a million.
  int whole(const char* key, int least);
  FigureSource source();
  /// An object of a value, where it comes from, and perhaps a note.
  Figure figure(const char* key, double least, bool above = false);
  /// A fraction above 0, up to 1.
  Figure share(const char* key);

 private:
  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> read_;
};

}  // namespace consist
