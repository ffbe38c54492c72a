#include "plugins/observers/tensorboard/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"

namespace consist::tensorboard {
namespace {

constexpr std::size_t header_bytes = 12, footer_bytes = 4;
constexpr std::int64_t most_event_bytes = std::int64_t{64} << 20;  // far above what is written; a longer one is no record

/// By the polynomial of Castagnoli, reflected.
constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}

/// A CRC beside the bytes that it is of would be the same for all; the format turns it and adds a constant.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <typename Number>
std::string little_endian(Number value) {
  std::string bytes(sizeof value, '\0');
  for (std::size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

template <typename Number>
Number number_of(const char* bytes) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

// The parts of a message of protocol buffers.
enum Wire : unsigned { varint_wire = 0, bytes8_wire = 1, length_wire = 2, bytes4_wire = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(unsigned field, Wire wire) {
  return varint(field << 3 | wire);
}
std::string integer(unsigned field, std::int64_t value) {
  return key(field, varint_wire) + varint(static_cast<std::uint64_t>(value));
}
std::string nested(unsigned field, std::string_view content) {
  return key(field, length_wire) + varint(content.size()) + std::string(content);
}
std::string real8(unsigned field, double value) {
  return key(field, bytes8_wire) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string real4(unsigned field, float value) {
  return key(field, bytes4_wire) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string event(double time, std::int64_t step, const std::string& what) {
  return real8(1, time) + (step != 0 ? integer(2, step) : std::string()) + what;
}

/// Reads a varint at `at` and moves it on; nothing where the message ends in it.
std::optional<std::uint64_t> take_varint(std::string_view message, std::size_t& at) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; at < message.size() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(message[at++]);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Event.step: 0 where it is not there, as of messages of version and text.
std::int64_t step_of(std::string_view message) {
  for (std::size_t at = 0; at < message.size();) {
    const std::optional<std::uint64_t> tag = take_varint(message, at);
    if (!tag) return 0;
    const auto wire = static_cast<unsigned>(*tag & 7);
    if (wire == varint_wire) {
      const std::optional<std::uint64_t> value = take_varint(message, at);
      if (*tag >> 3 == 2) return static_cast<std::int64_t>(value.value_or(0));
    } else if (wire == length_wire) {
      const std::optional<std::uint64_t> length = take_varint(message, at);
      if (!length || *length > message.size() - at) return 0;
      at += static_cast<std::size_t>(*length);
    } else {
      at += wire == bytes8_wire ? 8 : 4;
    }
  }
  return 0;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = make_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string& path) : file_(path) {
  write(real8(1, 0) + nested(3, "brain.Event:2"));
}

void EventFile::write(const std::string& event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  file_.append(length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event)));
}

void EventFile::scalars(double time, std::int64_t step, const Scalars& values) {
  std::string summary;
  for (const auto& [tag, value] : values) summary += nested(1, nested(1, tag) + real4(2, static_cast<float>(value)));
  write(event(time, step, nested(5, summary)));
}

void EventFile::text(double time, std::int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr std::int64_t string_type = 7;
  const std::string metadata = nested(1, nested(1, "text"));  // SummaryMetadata.plugin_data.plugin_name
  const std::string shape = nested(2, integer(1, 1));         // TensorShapeProto.dim.size
  const std::string tensor = integer(1, string_type) + nested(2, shape) + nested(8, markdown);
  write(event(time, step, nested(5, nested(1, nested(1, tag) + nested(8, tensor) + nested(9, metadata)))));
}

void EventFile::restart(double time, std::int64_t step) {
  constexpr std::int64_t start = 1;  // SessionLog.status
  write(event(time, step, nested(7, integer(1, start))));
}

void cut_back(const std::string& path, std::int64_t last_step) {
  const InputFile file(path);
  std::int64_t end = 0;
  while (end + static_cast<std::int64_t>(header_bytes) <= file.size()) {
    std::array<char, header_bytes> header{};
    file.read(end, header.data(), header.size());
    const auto length = number_of<std::uint64_t>(header.data());
    if (number_of<std::uint32_t>(header.data() + 8) != masked_crc({header.data(), 8}) || length > most_event_bytes) {
      if (end == 0)
        throw DataError(path + " is no file of events of TensorBoard, so that the run cannot go on beside it; move it away");
      break;
    }
    const std::int64_t next = end + static_cast<std::int64_t>(header_bytes + length + footer_bytes);
    if (next > file.size()) break;
    std::string message(length, '\0');
    file.read(end + static_cast<std::int64_t>(header_bytes), message.data(), message.size());
    if (step_of(message) > last_step) break;
    end = next;
  }
  if (end == file.size()) return;
  if (::truncate(path.c_str(), end) != 0) throw SystemError("cannot shorten " + path + ": " + std::strerror(errno));
}

}  // namespace consist::tensorboard
