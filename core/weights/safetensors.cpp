#include "core/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "consist/bfloat16.h"
#include "consist/error.h"
#include "core/base/float16.h"

namespace consist {
namespace {

constexpr std::int64_t kBlock = std::int64_t{4} << 20;  // bytes per read or write
constexpr std::int64_t kAlignment = 8;
constexpr std::int64_t kLengthBytes = 8;

TensorTable read_table(const InputFile& file) {
  const std::string& path = file.path();
  if (file.size() < kLengthBytes) {
    throw DataError(path + " is cut off or no safetensors file: it has " + std::to_string(file.size()) + " bytes");
  }
  std::array<unsigned char, kLengthBytes> raw{};
  file.read(0, raw.data(), raw.size());
  if (std::memcmp(raw.data(), "version ", kLengthBytes) == 0) {
    throw DataError(path + " is a placeholder of Git LFS and not the file itself; fetch it with `git lfs pull`");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= std::uint64_t{raw[i]} << (8 * i);
  if (length > static_cast<std::uint64_t>(max_header_bytes)) {
    throw DataError(path + " is no safetensors file: it claims a header of " + std::to_string(length) + " bytes, at most " +
                    std::to_string(max_header_bytes) + " are legal");
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  const std::int64_t data_offset = kLengthBytes + header_bytes;
  if (data_offset > file.size()) {
    throw DataError(path + " is cut off or no safetensors file: its header ends at byte " + std::to_string(data_offset) +
                    ", the file has " + std::to_string(file.size()));
  }
  std::string header(length, '\0');
  file.read(kLengthBytes, header.data(), header.size());
  return parse_tensor_table(header, data_offset, file.size() - data_offset, path);
}

std::string shape_text(const StoredTensor& tensor) {
  return nlohmann::json(tensor.shape).dump();
}

template <typename To>
To convert(std::uint32_t f32_bits) {
  if constexpr (std::is_same_v<To, float>) return std::bit_cast<float>(f32_bits);
  return static_cast<To>(to_bfloat16(std::bit_cast<float>(f32_bits)));
}

/// The order in the file: wide dtypes first, otherwise as given.
std::vector<const TensorSource*> file_order(std::span<const TensorSource> tensors) {
  std::vector<const TensorSource*> order;
  for (const TensorSource& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorSource* a, const TensorSource* b) { return a->dtype.bytes() > b->dtype.bytes(); });
  return order;
}

std::int64_t bytes_of(const TensorSource& tensor) {
  return tensor.shape.elements() * static_cast<std::int64_t>(tensor.dtype.bytes());
}

/// Length and header, padded to the alignment.
std::string head(std::span<const TensorSource* const> order, const std::map<std::string, std::string>& metadata) {
  using Object = nlohmann::ordered_json::object_t;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const TensorSource* tensor : order) {
    std::vector<std::int64_t> extents;
    for (int dim = 0; dim < tensor->shape.rank(); ++dim) extents.push_back(tensor->shape[dim]);
    // By key, each insertion would search all tensors before it; check_names has found the names to differ.
    header.get_ref<Object&>().Object::Container::emplace_back(
        tensor->name, nlohmann::ordered_json{
                          {"dtype", tensor->dtype.name()}, {"shape", extents}, {"data_offsets", {at, at + bytes_of(*tensor)}}});
    at += bytes_of(*tensor);
  }
  std::string json = header.dump();
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::string text;
  for (int i = 0; i < kLengthBytes; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  return text + json;
}

void check_names(std::span<const TensorSource> tensors) {
  std::set<std::string_view> names;
  for (const TensorSource& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw UsageError("a safetensors file cannot hold two tensors of the name " + tensor.name);
    }
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path), table_(read_table(file_)) {}

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const {
  const auto found = table_.tensors.find(name);
  if (found == table_.tensors.end()) {
    throw DataError(path() + " has no tensor " + std::string(name) + " (it has " + std::to_string(table_.tensors.size()) +
                    " others)");
  }
  return found->second;
}

Shape SafetensorsFile::shape(std::string_view name) const {
  const StoredTensor& found = tensor(name);
  if (found.shape.size() > static_cast<std::size_t>(Shape::max_rank)) {
    throw DataError("tensor " + std::string(name) + " of " + path() + " has the shape " + shape_text(found) + ", more than " +
                    std::to_string(Shape::max_rank) + " dimensions");
  }
  Shape shape;
  for (const std::int64_t extent : found.shape) shape.push_back(extent);
  return shape;
}

const StoredTensor& SafetensorsFile::range(std::string_view name, std::int64_t first, std::int64_t count) const {
  const StoredTensor& found = tensor(name);
  if (first < 0 || count < 0 || first > found.elements || count > found.elements - first) {
    throw DataError("tensor " + std::string(name) + " of " + path() + " has the shape " + shape_text(found) + ": elements from " +
                    std::to_string(first) + ", " + std::to_string(count) + " of them, are not in it");
  }
  return found;
}

template <typename To>
void SafetensorsFile::read_floats(std::string_view name, std::int64_t first, std::span<To> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  const StoredTensor& found = range(name, first, count);
  const bool wide = found.dtype == "F32";
  if (!wide && found.dtype != "BF16" && found.dtype != "F16") {
    throw DataError("tensor " + std::string(name) + " of " + path() + " is stored as " + found.dtype +
                    "; weights are read from F32, BF16 and F16: convert it");
  }
  const std::int64_t width = wide ? 4 : 2;
  if (static_cast<std::int64_t>(sizeof(To)) == width && found.dtype != "F16") {
    file_.read(found.offset + first * width, out.data(), out.size_bytes());
    return;
  }
  std::vector<char> block(static_cast<std::size_t>(std::min(kBlock, count * width)));
  const auto elements_per_block = static_cast<std::int64_t>(block.size()) / width;
  for (std::int64_t done = 0; done < count; done += elements_per_block) {
    const std::int64_t part = std::min(elements_per_block, count - done);
    file_.read(found.offset + (first + done) * width, block.data(), static_cast<std::size_t>(part * width));
    To* to = out.data() + done;
    for (std::int64_t i = 0; i < part; ++i) {
      if (wide) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &block[static_cast<std::size_t>(i * 4)], 4);
        to[i] = convert<To>(bits);
      } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, &block[static_cast<std::size_t>(i * 2)], 2);
        to[i] = convert<To>(std::bit_cast<std::uint32_t>(found.dtype == "F16" ? from_float16(bits) : from_bfloat16(bits)));
      }
    }
  }
}

void SafetensorsFile::read_f32(std::string_view name, std::int64_t first, std::span<float> out) const {
  read_floats(name, first, out);
}

void SafetensorsFile::read_bf16(std::string_view name, std::int64_t first, std::span<std::uint16_t> out) const {
  read_floats(name, first, out);
}

void SafetensorsFile::read_stored(std::string_view name, StoredDType dtype, std::int64_t first, std::int64_t count,
                                  void* out) const {
  const StoredTensor& found = range(name, first, count);
  if (found.dtype != dtype.name()) {
    throw DataError("tensor " + std::string(name) + " of " + path() + " is stored as " + found.dtype + ", expected is " +
                    std::string(dtype.name()));
  }
  const auto width = static_cast<std::int64_t>(dtype.bytes());
  file_.read(found.offset + first * width, out, static_cast<std::size_t>(count * width));
}

std::int64_t safetensors_bytes(std::span<const TensorSource> tensors, const std::map<std::string, std::string>& metadata) {
  auto total = static_cast<std::int64_t>(head(file_order(tensors), metadata).size());
  for (const TensorSource& tensor : tensors) total += bytes_of(tensor);
  return total;
}

void write_safetensors(AtomicFile& file, std::span<const TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata, BlockedSha256* digest) {
  check_names(tensors);
  const auto put = [&](const void* data, std::size_t bytes) {
    file.write(data, bytes);
    if (digest != nullptr) digest->update(data, bytes);
  };
  const std::vector<const TensorSource*> order = file_order(tensors);
  file.reserve(safetensors_bytes(tensors, metadata));
  const std::string start = head(order, metadata);
  put(start.data(), start.size());
  std::vector<char> block(static_cast<std::size_t>(kBlock));
  for (const TensorSource* tensor : order) {
    const auto width = static_cast<std::int64_t>(tensor->dtype.bytes());
    const std::int64_t elements = tensor->shape.elements();
    for (std::int64_t first = 0; first < elements; first += kBlock / width) {
      const std::int64_t count = std::min(kBlock / width, elements - first);
      tensor->read(block.data(), first, count);
      put(block.data(), static_cast<std::size_t>(count * width));
    }
  }
  file.finish();
}

}  // namespace consist
