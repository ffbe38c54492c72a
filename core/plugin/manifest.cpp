#include "core/plugin/manifest.h"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "consist/error.h"

namespace consist {
namespace {

/// A file read at checked offsets.
class Bytes {
 public:
  explicit Bytes(const std::filesystem::path& path) : path_(path.string()) {
    // Opening a pipe or a device could wait for ever.
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
      throw DataError(path_ + " is no regular file" + (error ? ": " + error.message() : ""));
    file_.open(path, std::ios::binary);
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
  /// Throws DataError unless the file has these bytes.
  void require(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset <= size_ && bytes <= size_ - offset) return;
    throw DataError(path_ + " is cut off or damaged: it has " + std::to_string(size_) + " bytes, its tables name more");
  }
  void read(std::uint64_t offset, void* out, std::uint64_t bytes) {
    require(offset, bytes);
    if (offset < window_begin_ || offset + bytes > window_begin_ + window_.size()) {
      // Tables and the names in them are read in pieces of a few bytes and lie beside one another: each would be two calls of the
      // system, and each process reads those of all plugins.
      window_begin_ = offset - std::min(offset, window_bytes / 2);
      window_.resize(std::min(std::max(window_bytes, offset - window_begin_ + bytes), size_ - window_begin_));
      file_.seekg(static_cast<std::streamoff>(window_begin_));
      file_.read(window_.data(), static_cast<std::streamsize>(window_.size()));
      if (!file_) throw DataError(path_ + " cannot be read to the end");
    }
    std::memcpy(out, window_.data() + (offset - window_begin_), bytes);
  }
  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
  static constexpr std::uint64_t window_bytes = 8192;
  std::string window_;  // bytes of the file from window_begin_ on
  std::uint64_t window_begin_ = 0;
};

#if defined(__x86_64__)
constexpr Elf64_Half this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half this_machine = EM_AARCH64;
#else
#error "add this processor's number of ELF files"
#endif
constexpr unsigned char this_byte_order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

/// Ends in NUL and has nothing before it that could upset a terminal.
template <std::size_t N>
bool is_text(const char (&text)[N]) {
  const char* end = std::find(text, text + N, '\0');
  return end != text + N && std::none_of(text, end, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// Names are parts of options (--name.option) and of lists (a=2+b, a,b), so they hold none of the signs used there.
bool is_name(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

Elf64_Ehdr read_header(Bytes& file) {
  unsigned char ident[EI_NIDENT] = {};
  if (file.size() < sizeof ident)
    throw DataError(file.path() + " is no ELF file: it has only " + std::to_string(file.size()) + " bytes");
  file.read(0, ident, sizeof ident);
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) throw DataError(file.path() + " is no ELF file, so it is no plugin");
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != this_byte_order) {
    throw DataError(file.path() + " is an ELF file of another word size or byte order than this machine's");
  }
  const auto header = file.at<Elf64_Ehdr>(0);
  if (header.e_machine != this_machine) {
    throw DataError(file.path() + " was built for another processor (ELF machine " + std::to_string(header.e_machine) +
                    ", this one is " + std::to_string(this_machine) + ")");
  }
  if (header.e_type != ET_DYN) throw DataError(file.path() + " is an ELF file, but no shared object, so it is no plugin");
  if (header.e_shoff == 0 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
    throw DataError(file.path() + " has no section table, so it is no plugin (was it stripped of it?)");
  }
  return header;
}

/// Requires all bytes that the dynamic linker would map: it does not check before it maps, and a truncated file would end the
/// process.
void require_segments(Bytes& file, const Elf64_Ehdr& header) {
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr))
    throw DataError(file.path() + " has a segment table of an unknown form");
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = file.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    file.require(segment.p_offset, segment.p_filesz);
  }
}

PluginInfo parse_record(Bytes& file, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < sizeof(PluginInfo)) {
    throw DataError(file.path() + ": its plugin record has " + std::to_string(bytes) + " bytes, this build's has " +
                    std::to_string(sizeof(PluginInfo)) + "; rebuild the plugin against this version of Consist");
  }
  const auto info = file.at<PluginInfo>(offset);
  const PluginInfo expected;
  if (std::memcmp(info.magic, expected.magic, sizeof info.magic) != 0)
    throw DataError(file.path() + ": its plugin record has a wrong magic");
  if (info.record_bytes != sizeof(PluginInfo)) {
    throw DataError(file.path() +
                    ": its plugin record is of another version; rebuild the plugin against this version of Consist");
  }
  if (!is_text(info.fingerprint) || !is_text(info.kind) || !is_text(info.name) || !is_text(info.version) ||
      !is_text(info.summary)) {
    throw DataError(file.path() + ": a text in its plugin record does not end, or has control characters");
  }
  if (!is_name(info.name)) {
    throw DataError(file.path() + ": its plugin is called '" + info.name + "'; names consist of letters, digits, '-' and '_'");
  }
  return info;
}

/// The last section of that name.
template <std::size_t N>
std::optional<Elf64_Shdr> find_section(Bytes& file, const Elf64_Ehdr& header, const char (&wanted)[N]) {
  auto section = [&](std::uint64_t index) { return file.at<Elf64_Shdr>(header.e_shoff + index * sizeof(Elf64_Shdr)); };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::optional<Elf64_Shdr> found;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr candidate = section(i);
    if (candidate.sh_type == SHT_NOBITS || candidate.sh_type == SHT_NULL) continue;
    file.require(candidate.sh_offset, candidate.sh_size);
    if (candidate.sh_name > names.sh_size || names.sh_size - candidate.sh_name < N) continue;
    char name[N];
    file.read(names.sh_offset + candidate.sh_name, name, N);
    if (std::memcmp(name, wanted, N) == 0) found = candidate;
  }
  return found;
}

std::vector<HeaderMark> read_headers(Bytes& file, const Elf64_Ehdr& header) {
  const std::optional<Elf64_Shdr> section = find_section(file, header, ".consist_headers");
  if (!section) return {};
  constexpr std::uint64_t most = 1 << 20;  // 45 headers have 4 KB
  if (section->sh_size > most)
    throw DataError(file.path() + ": its section .consist_headers has " + std::to_string(section->sh_size) + " bytes, at most " +
                    std::to_string(most) + " are read; rebuild the plugin");
  std::string bytes(section->sh_size, '\0');
  file.read(section->sh_offset, bytes.data(), bytes.size());
  return parse_header_marks(bytes, file.path());
}

/// Why its headers or its compiler do not suit; empty if they do.
std::string other_interface(const PluginManifest& plugin) {
  constexpr std::string_view own = CONSIST_FINGERPRINT,
                             remedy = "; rebuild it with the same compiler against the installed headers of this Consist";
  const std::string_view its = plugin.fingerprint;
  const auto compiler_of = [](std::string_view fingerprint) {
    return fingerprint.substr(std::min(fingerprint.find('/'), fingerprint.size()));
  };
  const std::string both = "it was built against " + std::string(its) + ", this build is " CONSIST_FINGERPRINT;
  // The header that makes the record has a mark where the others have one.
  const bool names_headers =
      std::any_of(plugin.headers.begin(), plugin.headers.end(), [](const HeaderMark& mark) { return mark.name == "plugin.h"; });
  if (!names_headers) return its == own ? "" : both + std::string(remedy);
  if (compiler_of(its) != compiler_of(own)) return both + std::string(remedy);
  const std::vector<std::string> changed = changed_headers(plugin.headers);
  if (changed.empty()) return {};
  return both + ", in which " + std::to_string(changed.size()) + " of the " + std::to_string(plugin.headers.size()) +
         " headers that it includes differ: " + few_of(changed) + std::string(remedy);
}

}  // namespace

PluginManifest read_manifest(const std::filesystem::path& path) {
  Bytes file(path);
  const Elf64_Ehdr header = read_header(file);
  require_segments(file, header);
  const std::optional<Elf64_Shdr> record = find_section(file, header, ".consist_plugin");
  if (!record) throw DataError(file.path() + " has no section .consist_plugin, so it is no plugin (CONSIST_PLUGIN makes it)");
  return {parse_record(file, record->sh_offset, record->sh_size), read_headers(file, header)};
}

int cuda_major_of_build() noexcept {
  return CONSIST_CUDA_MAJOR;
}

std::string incompatibility(const PluginManifest& info, int cuda_major) {
  constexpr std::string_view kinds[] = {"adapter",  "device",    "dataset",   "kernels",  "model",    "loss",
                                        "observer", "optimizer", "precision", "schedule", "strategy", "transport"};
  if (info.api_version != plugin_api_version) {
    return "it speaks plugin API " + std::to_string(info.api_version) + ", this build " + std::to_string(plugin_api_version) +
           "; rebuild it against this version of Consist";
  }
  if (std::string problem = other_interface(info); !problem.empty()) return problem;
  if (info.cuda_major != 0 && cuda_major != 0 && info.cuda_major != static_cast<std::uint32_t>(cuda_major)) {
    return "it was built with CUDA " + std::to_string(info.cuda_major) + ", this build's plugins with CUDA " +
           std::to_string(cuda_major) + "; rebuild it with a CUDA toolkit " + std::to_string(cuda_major) + ".x";
  }
  if (std::find(std::begin(kinds), std::end(kinds), info.kind) == std::end(kinds)) {
    return "its kind is '" + std::string(info.kind) +
           "'; there are adapter, device, dataset, kernels, model, loss, observer, optimizer, precision, schedule, strategy "
           "and "
           "transport";
  }
  return {};
}

}  // namespace consist
