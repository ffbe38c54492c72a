// Stands in for libFuzzer where the compiler has none: runs a target on its seeds, and on variants of them that follow from a
// fixed seed. Usage: fuzz_<target> SEED_FILE_OR_FOLDER...
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

#ifndef CONSIST_FUZZ_VARIANTS
#define CONSIST_FUZZ_VARIANTS 3000
#endif
constexpr int kVariants = CONSIST_FUZZ_VARIANTS;  // of each seed

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

/// Up to four small changes: bits, bytes, pieces removed, repeated or brought in from another seed.
std::string variant(std::string bytes, const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random); };
  for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(bytes.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(bytes.size() - at, 64));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.resize(at);
        break;
      default: {
        const std::string& other = seeds[below(seeds.size())];
        if (other.empty()) break;
        const std::size_t from = below(other.size());
        bytes.replace(at, length, other.substr(from, 1 + below(64)));
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds = {""};
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths = {argv[i]};
    if (std::filesystem::is_directory(paths.front())) {
      paths.clear();
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) paths.push_back(entry.path());
    }
    for (const auto& path : paths) {
      std::ifstream in(path, std::ios::binary);
      if (!in) {
        std::fprintf(stderr, "cannot read the seed %s\n", path.c_str());
        return 1;
      }
      seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  if (seeds.size() < 2) {
    std::fprintf(stderr, "usage: %s SEED_FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  std::mt19937 random(1);
  for (const std::string& seed : seeds) {
    run(seed);
    for (int i = 0; i < kVariants && !seed.empty(); ++i) run(variant(seed, seeds, random));
  }
  std::printf("%zu seeds and %d variants of each\n", seeds.size(), kVariants);
  return 0;
}
