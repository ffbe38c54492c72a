#include "core/weights/tensor_table.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/weights/stored_dtype.h"

namespace consist {
namespace {

using nlohmann::json;

struct StoredType {
  std::string_view name;
  int bits;
};

/// All types of the format; which of them can be read into what is decided when a tensor is read.
constexpr std::array<StoredType, 20> kTypes = {{{"F32", 32},    {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"I64", 64},
                                                {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
                                                {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
                                                {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64}}};

constexpr const char* kCorrupt = " is corrupt or no safetensors file: ";

class Parser {
 public:
  Parser(std::int64_t data_offset, std::int64_t data_bytes, const std::string& path)
      : data_offset_(data_offset), data_bytes_(data_bytes), path_(path) {}

  TensorTable parse(std::string_view text) {
    // The reference implementation wants the first byte to be '{' and lets spaces pad the end.
    if (text.empty() || text.front() != '{') fail("its header does not start with '{'");
    const json header = parse_header(text);
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(value);
      } else {
        read_tensor(name, value);
      }
    }
    check_ranges();
    return std::move(table_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_ + kCorrupt + what); }

  json parse_header(std::string_view text) const {
    // JSON leaves open what a repeated key means, and readers differ: such a file means different weights to different programs.
    return parse_json(text, path_ + kCorrupt + "its header",
                      {.most_bytes = max_header_bytes, .most_depth = 3, .repeated = JsonRules::Repeated::refused});
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) fail("__metadata__ is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("entry " + in_quotes(key) + " of __metadata__ is no text");
      table_.metadata.emplace(key, text.get<std::string>());
    }
  }

  std::int64_t integer(const json& value, const std::string& tensor, const char* what) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      fail("tensor " + tensor + " has a " + what + " that is no size: " + shown(value));
    }
    return value.get<std::int64_t>();
  }

  void read_tensor(const std::string& name, const json& value) {
    const std::string label = in_quotes(name);
    if (!value.is_object()) fail("entry " + label + " of its header is no object");
    const auto dtype = value.find("dtype");
    const auto shape = value.find("shape");
    const auto range = value.find("data_offsets");
    if (dtype == value.end() || !dtype->is_string()) fail("tensor " + label + " has no dtype");
    if (shape == value.end() || !shape->is_array()) fail("tensor " + label + " has no shape");
    if (range == value.end() || !range->is_array() || range->size() != 2)
      fail("tensor " + label + " has no data_offsets [begin, end]");

    StoredTensor tensor;
    tensor.dtype = dtype->get<std::string>();
    const auto type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& known) { return known.name == tensor.dtype; });
    if (type == kTypes.end()) fail("tensor " + label + " has the unknown dtype " + in_quotes(tensor.dtype));
    tensor.elements = 1;
    for (const json& extent : *shape) {
      tensor.shape.push_back(integer(extent, label, "shape"));
      if (__builtin_mul_overflow(tensor.elements, tensor.shape.back(), &tensor.elements))
        fail("the shape of tensor " + label + " overflows");
    }
    std::int64_t bits = 0;
    if (__builtin_mul_overflow(tensor.elements, std::int64_t{type->bits}, &bits) || bits % 8 != 0) {
      fail("the size of tensor " + label + " overflows or is not of whole bytes");
    }
    const std::int64_t begin = integer((*range)[0], label, "begin");
    const std::int64_t end = integer((*range)[1], label, "end");
    if (begin > end) fail("tensor " + label + " ends before it begins");
    if (end - begin != bits / 8) {
      fail("tensor " + label + " has " + std::to_string(end - begin) + " bytes, but " + tensor.dtype + " of its shape takes " +
           std::to_string(bits / 8));
    }
    if (end > data_bytes_) {
      throw DataError(path_ + " is cut off: tensor " + label + " ends at byte " + std::to_string(end) +
                      " of the data, the file has " + std::to_string(data_bytes_));
    }
    tensor.offset = data_offset_ + begin;
    tensor.bytes = bits / 8;
    table_.tensors.emplace(name, std::move(tensor));
  }

  /// The tensors must cover the data exactly, as the reference implementation demands: nothing can hide in between or be shared.
  void check_ranges() const {
    std::vector<std::pair<const StoredTensor*, const std::string*>> order;
    for (const auto& [name, tensor] : table_.tensors) order.emplace_back(&tensor, &name);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first->offset, a.first->bytes) < std::pair(b.first->offset, b.first->bytes);
    });
    std::int64_t at = data_offset_;
    for (const auto& [tensor, name] : order) {
      if (tensor->offset < at) fail("tensor " + in_quotes(*name) + " overlaps the one before it");
      if (tensor->offset > at)
        fail(std::to_string(tensor->offset - at) + " bytes before tensor " + in_quotes(*name) + " belong to no tensor");
      at += tensor->bytes;
    }
    const std::int64_t rest = data_offset_ + data_bytes_ - at;
    if (rest != 0) fail(std::to_string(rest) + " bytes follow after its last tensor");
  }

  std::int64_t data_offset_, data_bytes_;
  const std::string& path_;
  TensorTable table_;
};

}  // namespace

TensorTable parse_tensor_table(std::string_view json, std::int64_t data_offset, std::int64_t data_bytes,
                               const std::string& path) {
  return Parser(data_offset, data_bytes, path).parse(json);
}

std::string_view stored_name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::e4m3:
      return "F8_E4M3";
    case DType::e5m2:
      return "F8_E5M2";
    case DType::i32:
      return "I32";
    case DType::u8:
      return "U8";
  }
  return "";
}

}  // namespace consist
