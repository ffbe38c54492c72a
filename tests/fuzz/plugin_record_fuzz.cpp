// Any bytes as a plugin's file: refused with a DataError, or its record is read: then all of its texts end and a terminal can
// show them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "consist/error.h"
#include "core/plugin/manifest.h"
#include "tests/fuzz/input_path.h"

namespace {

template <std::size_t N>
void check(const char (&text)[N]) {
  const auto* end = static_cast<const char*>(std::memchr(text, '\0', N));
  if (end == nullptr) std::abort();
  for (const char* c = text; c != end; ++c) {
    if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  static const InputPath input;
  input.fill(data, size);
  try {
    const PluginManifest info = read_manifest(input.path());
    check(info.fingerprint);
    check(info.kind);
    check(info.name);
    check(info.version);
    check(info.summary);
    for (const HeaderMark& header : info.headers) {
      if (header.name.size() > 64 || header.name.find_first_of("\033\n") != header.name.npos) std::abort();
    }
    if (incompatibility(info).size() > 2000) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
