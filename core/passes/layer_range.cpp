#include "core/passes/layer_range.h"

#include <charconv>
#include <string_view>

#include "consist/error.h"

namespace consist {
namespace {

int layer_number(std::string_view text, const std::string& malformed) {
  int layer = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size() || layer < 0) throw UsageError(malformed);
  return layer;
}

}  // namespace

std::pair<int, int> parse_layers(const std::string& text, const std::string& option, const std::string& malformed) {
  const std::size_t dash = text.find('-');
  const int first = layer_number(std::string_view(text).substr(0, dash), malformed),
            last = dash == std::string::npos ? first : layer_number(std::string_view(text).substr(dash + 1), malformed);
  if (last < first) throw UsageError(option + " '" + text + "' ends before it begins");
  return {first, last};
}

}  // namespace consist
