#include "core/cost/file_object.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"

namespace consist {

nlohmann::ordered_json json_of(const Figure& figure) {
  return {{"value", figure.value}, {"source", name_of(figure.source)}};
}

bool is_figure(double number) {
  return number == 0 || (std::abs(number) >= least_figure && std::abs(number) <= most_figure);
}

std::string item(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

FileObject::FileObject(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) throw DataError(where_ + " must be an object, not " + shown(json));
}

void FileObject::finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (key != "note" && !read_.contains(key)) throw DataError(where_ + " has the unknown key " + shown(key));
  }
}

bool FileObject::has(const char* key) const {
  return json_.contains(key);
}

std::vector<std::string> FileObject::keys() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : json_.items()) {
    if (key != "note") all.push_back(key);
  }
  return all;
}

const nlohmann::json& FileObject::at(const char* key) {
  const auto found = json_.find(key);
  if (found == json_.end()) throw DataError(where_ + " lacks the key \"" + key + "\"");
  read_.insert(key);
  return *found;
}

std::string FileObject::text(const char* key) {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) throw DataError(name(key) + " must be a text, not " + shown(value));
  return value.get<std::string>();
}

const nlohmann::json& FileObject::list(const char* key) {
  const nlohmann::json& value = at(key);
  if (!value.is_array()) throw DataError(name(key) + " must be a list, not " + shown(value));
  return value;
}

double FileObject::number(const char* key, double least, bool above) {
  const nlohmann::json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!std::isfinite(number) || number < least || (above && number == least))
    throw DataError(name(key) + " must be a number " + (above ? "above " : "of at least ") + shown(nlohmann::json(least)) +
                    ", not " + shown(value));
  if (!is_figure(number)) throw DataError(name(key) + " is " + shown(value) + "; a figure of a machine is " + figure_bounds);
  return number;
}

int FileObject::whole(const char* key, int least) {
  const double number = this->number(key, least);
  if (number != std::floor(number) || number > 1e6)
    throw DataError(name(key) + " must be a whole number up to a million, not " + shown(at(key)));
  return static_cast<int>(number);
}

FigureSource FileObject::source() {
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

Figure FileObject::figure(const char* key, double least, bool above) {
  FileObject object = this->object(key);
  const Figure figure{object.number("value", least, above), object.source()};
  object.finish();
  return figure;
}

Figure FileObject::share(const char* key) {
  const Figure figure = this->figure(key, 0, true);
  if (figure.value > 1) throw DataError(name(key) + " is a share: at most 1, not " + shown(nlohmann::json(figure.value)));
  return figure;
}

}  // namespace consist
