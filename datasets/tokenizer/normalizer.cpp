#include "datasets/tokenizer/normalizer.h"

#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {

std::string with_replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, done)) {
    out.append(text.substr(done, at - done)).append(content);
    done = at + pattern.size();
  }
  return out.append(text.substr(done));
}

std::string normalized(std::string_view text, const std::vector<Normalization>& steps) {
  std::string out(text);
  for (const Normalization& step : steps) {
    switch (step.kind) {
      case Normalization::Kind::nfc:
        out = to_nfc(out);
        break;
      case Normalization::Kind::prepend:
        if (!out.empty()) out.insert(0, step.content);
        break;
      case Normalization::Kind::replace:
        out = with_replaced(out, step.pattern, step.content);
        break;
    }
  }
  return out;
}

}  // namespace consist::tokenizer
