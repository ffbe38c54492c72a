// Messages on a byte stream: fixed-width little-endian integers and counted texts, read with every bound checked.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "consist/error.h"

namespace consist::network {

static_assert(std::endian::native == std::endian::little, "the wire format is that of little-endian machines");

/// Appends to a message.
class WireWriter {
 public:
  template <typename Integer>
  WireWriter& integer(Integer value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  WireWriter& text(std::string_view value) {
    integer(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  /// Bytes whose count the reader knows.
  WireWriter& bytes(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads a message. REQUIRES: the message outlives the reader. ERRORS: DataError if the message ends too early.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer integer() {
    Integer value{};
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string_view text() { return take(integer<std::uint32_t>()); }
  std::string_view bytes(std::size_t count) { return take(count); }
  /// All that is left.
  std::string_view rest() { return take(bytes_.size()); }
  bool at_end() const noexcept { return bytes_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) throw DataError("a message of the job is shorter than its fields");
    const std::string_view result = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return result;
  }
  std::string_view bytes_;
};

}  // namespace consist::network
