#include "datasets/packing/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "consist/error.h"

namespace consist::packing {
namespace {

constexpr std::string_view magic = "CONSTOK\n";
constexpr std::uint32_t version = 1;
constexpr std::uint32_t no_separator = 0xffffffff;
using HeaderBytes = std::array<unsigned char, TokenFileHeader::bytes>;

template <typename Int>
void put(HeaderBytes& bytes, std::size_t offset, Int value) {
  for (std::size_t i = 0; i < sizeof(Int); ++i) bytes[offset + i] = static_cast<unsigned char>(value >> (8 * i));
}

template <typename Int>
Int get(const unsigned char* bytes) {
  Int value = 0;
  for (std::size_t i = 0; i < sizeof(Int); ++i)
    value = static_cast<Int>(value | static_cast<Int>(static_cast<Int>(bytes[i]) << (8 * i)));
  return value;
}

HeaderBytes to_bytes(const TokenFileHeader& header) {
  HeaderBytes bytes{};
  std::copy(magic.begin(), magic.end(), bytes.begin());
  put(bytes, 8, version);
  put(bytes, 12, static_cast<std::uint32_t>(header.width));
  put(bytes, 16, static_cast<std::uint64_t>(header.tokens));
  put(bytes, 24, header.largest);
  put(bytes, 28, header.vocabulary);
  put(bytes, 32, header.separator.value_or(no_separator));
  std::copy(header.tokenizer_sha256.begin(), header.tokenizer_sha256.end(), bytes.begin() + 40);
  return bytes;
}

TokenFileHeader read_header(const InputFile& file) {
  HeaderBytes bytes{};
  const auto refuse = [&](const std::string& why) {
    throw DataError(file.path() + " is no token file that can be read: " + why);
  };
  if (file.size() < TokenFileHeader::bytes)
    refuse("it has " + std::to_string(file.size()) + " bytes, fewer than the header's 128");
  file.read(0, bytes.data(), bytes.size());
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    refuse("it does not begin with CONSTOK; `consist tokenize` makes such files, and --tokens.format=u16 or u32 reads bare ids");
  }
  if (const auto found = get<std::uint32_t>(&bytes[8]); found != version)
    refuse("its version is " + std::to_string(found) + ", known is 1");
  TokenFileHeader header;
  const auto width = get<std::uint32_t>(&bytes[12]);
  if (width != 2 && width != 4) refuse("it says " + std::to_string(width) + " bytes per token; 2 or 4 are possible");
  header.width = static_cast<int>(width);
  const auto tokens = get<std::uint64_t>(&bytes[16]);
  const auto data = static_cast<std::uint64_t>(file.size() - TokenFileHeader::bytes);
  if (tokens > data || tokens * width != data) {
    refuse("its header says " + std::to_string(tokens) + " tokens of " + std::to_string(width) + " bytes, but " +
           std::to_string(data) + " bytes follow: it is cut off or damaged");
  }
  header.tokens = static_cast<std::int64_t>(tokens);
  header.largest = get<std::uint32_t>(&bytes[24]);
  header.vocabulary = get<std::uint32_t>(&bytes[28]);
  if (const auto separator = get<std::uint32_t>(&bytes[32]); separator != no_separator) header.separator = separator;
  if (tokens > 0 && header.largest >= header.vocabulary) {
    refuse("its header says that the largest id is " + std::to_string(header.largest) + " in a vocabulary of " +
           std::to_string(header.vocabulary));
  }
  if (bytes[40] != 0) header.tokenizer_sha256.assign(bytes.begin() + 40, bytes.begin() + 104);
  return header;
}

}  // namespace

TokenFile::TokenFile(std::string path, TokenFileFormat format) : file_(std::move(path)) {
  if (format == TokenFileFormat::header) {
    header_ = read_header(file_);
    offset_ = TokenFileHeader::bytes;
    return;
  }
  header_.width = format == TokenFileFormat::u16 ? 2 : 4;
  if (file_.size() % header_.width != 0) {
    throw DataError(file_.path() + " has " + std::to_string(file_.size()) + " bytes, which are no whole tokens of " +
                    std::to_string(header_.width) + " bytes");
  }
  header_.tokens = file_.size() / header_.width;
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  const auto width = static_cast<std::size_t>(header_.width);
  std::vector<unsigned char> bytes(tokens.size() * width);
  file_.read(offset_ + first * header_.width, bytes.data(), bytes.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t id = width == 2 ? get<std::uint16_t>(&bytes[i * 2]) : get<std::uint32_t>(&bytes[i * 4]);
    if (id > 0x7fffffff) {
      throw DataError(file_.path() + ": token " + std::to_string(first + static_cast<std::int64_t>(i)) + " is " +
                      std::to_string(id) + ", which is no token id: the file is damaged or has another format");
    }
    tokens[i] = static_cast<std::int32_t>(id);
  }
}

TokenFiles::TokenFiles(std::vector<TokenFile> files) : files_(std::move(files)), starts_{0} {
  for (const TokenFile& file : files_) starts_.push_back(starts_.back() + file.size());
}

void TokenFiles::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  auto file = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin()) - 1;
  while (!tokens.empty()) {
    const std::int64_t available = starts_[file + 1] - first;
    const auto part = static_cast<std::size_t>(std::min<std::int64_t>(available, static_cast<std::int64_t>(tokens.size())));
    if (part > 0) files_[file].read(first - starts_[file], tokens.first(part));
    first += static_cast<std::int64_t>(part);
    tokens = tokens.subspan(part);
    ++file;
  }
}

TokenFileWriter::TokenFileWriter(std::string path, TokenFileHeader header) : file_(std::move(path)), header_(std::move(header)) {
  header_.width = header_.vocabulary <= 0x10000 ? 2 : 4;
  header_.tokens = 0;
  header_.largest = 0;
  const HeaderBytes room{};  // the number of tokens is known at the end
  file_.write(room.data(), room.size());
}

void TokenFileWriter::write(std::span<const std::int32_t> tokens) {
  const auto width = static_cast<std::size_t>(header_.width);
  buffer_.resize(tokens.size() * width);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(tokens[i]);
    if (id >= header_.vocabulary)
      throw Error("the id " + std::to_string(id) + " is not in a vocabulary of " + std::to_string(header_.vocabulary));
    header_.largest = std::max(header_.largest, id);
    for (std::size_t k = 0; k < width; ++k) buffer_[i * width + k] = static_cast<char>(id >> (8 * k));
  }
  file_.write(buffer_.data(), buffer_.size());
  header_.tokens += static_cast<std::int64_t>(tokens.size());
}

void TokenFileWriter::commit() {
  const HeaderBytes bytes = to_bytes(header_);
  const int fd = ::open(file_.partial_path().c_str(), O_WRONLY | O_CLOEXEC);
  const ssize_t written = fd < 0 ? -1 : ::pwrite(fd, bytes.data(), bytes.size(), 0);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (written != static_cast<ssize_t>(bytes.size())) {
    throw SystemError("cannot write the header of " + file_.path() + ": " +
                      (written < 0 ? std::strerror(error) : "it was written in part"));
  }
  file_.commit();
}

}  // namespace consist::packing
