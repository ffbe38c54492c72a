#include "core/plugin/manifest.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

/// A file read at checked offsets.
class Bytes {
 public:
  explicit Bytes(const std::filesystem::path& path) : path_(path.string()), file_(path, std::ios::binary) {
    if (!file_) throw DataError(path_ + " cannot be read: " + std::strerror(errno));
    file_.seekg(0, std::ios::end);
    size_ = static_cast<std::uint64_t>(file_.tellg());
  }
  template <typename T>
  T at(std::uint64_t offset) {
    T value;
    read(offset, &value, sizeof value);
    return value;
  }
  void read(std::uint64_t offset, void* out, std::uint64_t bytes) {
    if (offset > size_ || bytes > size_ - offset) throw DataError(path_ + " is cut off: it has " + std::to_string(size_) + " bytes, more are named");
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
    if (!file_) throw DataError(path_ + " cannot be read to the end");
  }
  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
};

template <std::size_t N>
bool terminated(const char (&text)[N]) {
  return std::find(text, text + N, '\0') != text + N;
}

PluginInfo parse_record(Bytes& file, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < sizeof(PluginInfo)) {
    throw DataError(file.path() + ": its plugin record has " + std::to_string(bytes) + " bytes, this build's has " + std::to_string(sizeof(PluginInfo)) +
                    "; rebuild the plugin against this version of Consist");
  }
  const auto info = file.at<PluginInfo>(offset);
  const PluginInfo expected;
  if (std::memcmp(info.magic, expected.magic, sizeof info.magic) != 0) throw DataError(file.path() + ": its plugin record has a wrong magic");
  if (info.record_bytes != sizeof(PluginInfo)) {
    throw DataError(file.path() + ": its plugin record is of another version; rebuild the plugin against this version of Consist");
  }
  if (!terminated(info.fingerprint) || !terminated(info.kind) || !terminated(info.name) || !terminated(info.version) ||
      !terminated(info.summary) || info.name[0] == '\0') {
    throw DataError(file.path() + ": a text in its plugin record does not end");
  }
  return info;
}

}  // namespace

PluginInfo read_manifest(const std::filesystem::path& path) {
  Bytes file(path);
  const auto header = file.at<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    throw DataError(file.path() + " is no 64-bit ELF file");
  }
  if (header.e_shoff == 0 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
    throw DataError(file.path() + " has no section table, so it is no plugin (was it stripped of it?)");
  }
  auto section = [&](std::uint64_t index) { return file.at<Elf64_Shdr>(header.e_shoff + index * sizeof(Elf64_Shdr)); };
  const Elf64_Shdr names = section(header.e_shstrndx);
  constexpr char wanted[] = ".consist_plugin";
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr candidate = section(i);
    if (candidate.sh_name > names.sh_size || names.sh_size - candidate.sh_name < sizeof wanted) continue;
    char name[sizeof wanted];
    file.read(names.sh_offset + candidate.sh_name, name, sizeof name);
    if (std::memcmp(name, wanted, sizeof wanted) == 0) return parse_record(file, candidate.sh_offset, candidate.sh_size);
  }
  throw DataError(file.path() + " has no section .consist_plugin, so it is no plugin (CONSIST_PLUGIN makes it)");
}

std::string incompatibility(const PluginInfo& info) {
  if (info.api_version != plugin_api_version) {
    return "it speaks plugin API " + std::to_string(info.api_version) + ", this build " + std::to_string(plugin_api_version) +
           "; rebuild it against this version of Consist";
  }
  if (std::string_view(info.fingerprint) != CONSIST_FINGERPRINT) {
    return "it was built against " + std::string(info.fingerprint) + ", this build is " CONSIST_FINGERPRINT +
           "; rebuild it with the same compiler against the installed headers of this Consist";
  }
  return {};
}

}  // namespace consist
