#include "core/checkpoint/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/base/sha256.h"

namespace consist {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "consist checkpoint";
constexpr int kDeepest = 8;
constexpr std::int64_t kMostBytes = 64'000'000;

json to_json(const CheckpointFile& file) {
  json entry{{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}};
  if (file.hashed_in_blocks) entry["sha256_blocks"] = BlockedSha256::block;
  return entry;
}

/// Reads fields by name and type; complains by name.
class Fields {
 public:
  Fields(const json& object, const std::string& path, const std::string& what) : object_(object), path_(path), what_(what) {
    if (!object.is_object()) fail("is no object");
  }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_ + " is corrupt: " + what_ + " " + what); }

  bool has(const char* name) const { return object_.contains(name); }
  const json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(std::string("has no ") + name);
    return *found;
  }
  std::int64_t count(const char* name, std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    const json& value = at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      fail(std::string("has an illegal ") + name);
    return value.get<std::int64_t>();
  }
  std::uint64_t unsigned_integer(const char* name) const {
    const json& value = at(name);
    if (!value.is_number_unsigned()) fail(std::string("has an illegal ") + name);
    return value.get<std::uint64_t>();
  }
  std::string text(const char* name) const {
    const json& value = at(name);
    if (!value.is_string()) fail(std::string("has no text ") + name);
    return value.get<std::string>();
  }

 private:
  const json& object_;
  const std::string& path_;
  std::string what_;
};

CheckpointFile file_from(const json& value, const std::string& path) {
  const Fields fields(value, path, "a file's entry");
  const CheckpointFile file{fields.text("name"), fields.count("bytes"), fields.text("sha256"), fields.has("sha256_blocks")};
  if (file.hashed_in_blocks && fields.count("sha256_blocks") != BlockedSha256::block) fields.fail("has an illegal sha256_blocks");
  if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos ||
      file.name.find('\0') != std::string::npos) {
    fields.fail("has no plain file name");
  }
  const bool is_hex = std::all_of(file.sha256.begin(), file.sha256.end(),
                                  [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (file.sha256.size() != 64 || !is_hex) fields.fail("has an illegal sha256");
  return file;
}

/// As text, which is equal for equal values.
std::string room_text(double room) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", room);
  return text;
}

double room_from(const Fields& fields) {
  if (!fields.has("room")) return 1;
  const std::string text = fields.text("room");
  char* end = nullptr;
  const double room = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(room) || room < 1) fields.fail("has an illegal room");
  return room;
}

/// Over the fields, and since version 3 over the version, too.
std::string checksum(std::int64_t version, const json& fields) {
  return sha256_of((version < 3 ? "" : std::to_string(version) + " ") + fields.dump());
}

json parse_state(std::string_view text, const std::string& path) {
  return parse_json(text, path + " is cut off or corrupt: it", {.most_bytes = kMostBytes, .most_depth = kDeepest});
}

}  // namespace

std::string to_text(const CheckpointState& state) {
  json files = json::array();
  for (const CheckpointFile& file : state.files) files.push_back(to_json(file));
  json fields = {{"step", state.step},   {"seed", state.seed},     {"data_position", state.data_position},
                 {"ranks", state.ranks}, {"layout", state.layout}, {"config", state.config},
                 {"files", files}};
  if (state.room != 1) fields["room"] = room_text(state.room);
  // dump() without spaces gives equal text for equal values: keys are sorted, and there are no fractions.
  const json whole = {
      {"format", kFormat}, {"version", state.version}, {"state", fields}, {"sha256", checksum(state.version, fields)}};
  return whole.dump(2) + "\n";
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path) {
  const json parsed = parse_state(text, path);
  const Fields whole(parsed, path, "it");
  if (whole.text("format") != kFormat) whole.fail(std::string("is not marked as ") + kFormat);
  const std::int64_t version = whole.count("version");
  if (version < 1 || version > checkpoint_version) {
    throw DataError(path + " is a checkpoint of version " + std::to_string(version) + ", this program reads versions up to " +
                    std::to_string(checkpoint_version));
  }
  const json& inner = whole.at("state");
  if (checksum(version, inner) != whole.text("sha256")) whole.fail("does not match its checksum");
  const Fields fields(inner, path, "its state");
  CheckpointState state;
  state.version = static_cast<int>(version);
  state.step = fields.count("step");
  state.seed = fields.unsigned_integer("seed");
  state.data_position = fields.count("data_position");
  state.ranks = static_cast<int>(fields.count("ranks", std::numeric_limits<int>::max()));
  state.layout = fields.text("layout");
  state.config = fields.text("config");
  state.room = room_from(fields);
  const json& files = fields.at("files");
  if (!files.is_array()) fields.fail("has no list of files");
  std::set<std::string> names;
  for (const json& value : files) {
    state.files.push_back(file_from(value, path));
    if (!names.insert(state.files.back().name).second)
      fields.fail("has the file " + in_quotes(state.files.back().name) + " twice");
  }
  return state;
}

std::string to_text(const CheckpointFile& file) {
  return to_json(file).dump();
}

CheckpointFile parse_checkpoint_file(std::string_view text) {
  const std::string path = "a rank's message about its checkpoint file";
  return file_from(parse_state(text, path), path);
}

}  // namespace consist
