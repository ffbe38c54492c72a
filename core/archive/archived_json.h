// JSON texts of archives, which may be anybody's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "consist/error.h"
#include "consist/export.h"

namespace consist {

/// True if objects and lists of a JSON text nest at most 32 levels deep: walking through a deeper value needs more
/// stack than there may be.
CONSIST_API bool is_shallow(std::string_view text) noexcept;

/// The value; "discarded" (is_object() and its like are false) for what is no JSON or nests deeper.
template <typename Json = nlohmann::json>
Json archived_json(std::string_view text) {
  return is_shallow(text) ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

/// The value if it is an object, else an empty one.
template <typename Json = nlohmann::json>
Json archived_object(std::string_view text) {
  Json parsed = archived_json<Json>(text);
  return parsed.is_object() ? parsed : Json::object();
}

/// The configuration of a run: archived_json() of "/config", with the options of plugins as this version spells them.
CONSIST_API nlohmann::json archived_config(std::string_view text);

/// Runs `read`, which takes values out of the JSON of the archive at `path`. Throws DataError where they are of other types.
template <typename Read>
auto of_archive(const std::string& path, Read&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw DataError("the archive " + path + " is damaged: its JSON is not that of a run: " + error.what());
  }
}

}  // namespace consist
