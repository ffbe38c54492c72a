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

NormalizedLengths::NormalizedLengths(std::string_view text, const std::vector<Normalization>& steps, std::string_view also)
    : text_(text), also_(also), steps_(steps) {
  for (const Normalization& step : steps) {
    if (step.kind != Normalization::Kind::prepend) inner_.push_back(step);
    if (step.kind == Normalization::Kind::replace && step.pattern.size() != 1) cuts_ = false;
  }
}

std::size_t NormalizedLengths::measured(std::size_t begin, std::size_t end) const {
  const std::string_view part = text_.substr(begin, end - begin);
  const std::vector<Normalization>& steps = begin == 0 ? steps_ : inner_;
  if (steps.empty() && also_.empty()) return part.size();
  const std::string now = steps.empty() ? std::string(part) : normalized(part, steps);
  return also_.empty() ? now.size() : with_replaced(now, also_, " ").size();
}

std::size_t NormalizedLengths::of_first(std::size_t bytes) {
  if (bytes < anchor_) anchor_ = base_ = 0;
  std::size_t cut = bytes;  // nothing before an ASCII character is composed with it
  while (cuts_ && cut > anchor_ && (cut == text_.size() || static_cast<unsigned char>(text_[cut]) >= 0x80)) --cut;
  if (cuts_ && cut > anchor_) {
    base_ += measured(anchor_, cut);
    anchor_ = cut;
  }
  return base_ + (anchor_ < bytes ? measured(anchor_, bytes) : 0);
}

}  // namespace consist::tokenizer
