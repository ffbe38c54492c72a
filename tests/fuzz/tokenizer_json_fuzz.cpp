// Any bytes as a tokenizer.json: they are refused with a DataError, or text is encoded to ids that exist and, but for what normalization and added
// tokens do, decode to it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "consist/error.h"
#include "datasets/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  using namespace consist::tokenizer;
  constexpr std::string_view texts[] = {"", "It's 12345 o'clock,\r\n\t dear <|endoftext|>", "\xce\xb1\xcc\x81\xe1\xbe\xb3 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb  x"};
  try {
    const Tokenizer tokenizer(parse_tokenizer_json({reinterpret_cast<const char*>(data), size}));
    for (std::string_view text : texts) {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      for (std::int32_t id : ids) {
        if (id < 0 || id >= tokenizer.vocabulary_size()) std::abort();
      }
      tokenizer.decode(ids);
    }
  } catch (const DataError&) {
  }
  return 0;
}
